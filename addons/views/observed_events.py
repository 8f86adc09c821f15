"""Reports the events that views send, and those that filters withhold, as lines for `edgehub observe` and the page."""

from __future__ import annotations

import time
from collections.abc import Callable

from addons.telemetry.observation import Observation
from addons.views.open_view import ViewKey
from addons.views.source import Source
from addons.views.tally import tallies_of_one
from kube.store.store import Key
from kube.store.view import Noted, View


def observed_events(add: Callable[[Observation], None]) -> Callable[[Source, ViewKey, View], Noted]:
    """Return a callback for `Sources.noted` that calls `add` with each event of an open watch."""

    def of_view(source: Source, key: ViewKey, view: View) -> Noted:
        resource = source.list_watch.type.group_resource

        def noted(event_type: str, object_: Key, version: int, size: int) -> None:
            if not view.watchers:
                return
            origin, why = origin_of(source), view.projection.why(object_)
            verdict = "filtered" if why else "offline" if origin == "copy" else "viewed"
            add(
                Observation(
                    *(time.time(), key.component, event_type, resource, "", *object_, verdict, 0, size, None),
                    *(origin, "view", "", version, tallies_of_one(why)),
                    is_event=True,
                    watchers=len(view.watchers),
                )
            )

        return noted

    return of_view


def origin_of(source: Source) -> str:
    """Return where a source's objects come from now: `cloud`, `leader`, or `copy` if no server answers."""
    upstream = source.reflector.upstream
    if source.reflector.error is not None or not (
        source.is_up() or (upstream is not None and upstream.is_up)
    ):
        return "copy"
    return "leader" if upstream is not None and upstream.is_elsewhere else "cloud"
