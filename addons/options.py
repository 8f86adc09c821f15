"""The hub's options in mitmproxy: declares them, parses them when one changes, and passes them to the other parts."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING

from mitmproxy import ctx, exceptions

from addons.settings import OPTIONS, Settings, parse_settings
from kube.option import as_flags

if TYPE_CHECKING:
    # Imports mitmproxy's certificates, flows and modes, which a command that asks a running hub does not need.
    from mitmproxy.addonmanager import Loader
    from mitmproxy.optmanager import OptManager

LIVE_OPTIONS = frozenset({"pod_address", "plain_users", "allow_hold", "show_secrets", "show_managed_fields"})
"""The options that take effect while the hub runs. All others are read once, at its start."""

logger = logging.getLogger(__name__)


class UnknownOptionError(ValueError):
    """An option name that the hub does not have."""


def refuse_unknown(names: Iterable[str]) -> None:
    """Raise UnknownOptionError if one of these option names begins like the hub's, which has no such option."""
    known = [f"hub_{option.name}" for option in OPTIONS]
    for name in names:
        if name.startswith("hub_") and name not in known:
            nearest = get_close_matches(name, known, n=1)
            raise UnknownOptionError(
                f"there is no option {name}" + (f": is it {nearest[0]}?" if nearest else "")
            )


class Options:
    """Parses all hub_ options when one changes. A bad value is refused and the old settings stay in force."""

    name = "edgehub-options"

    settings: Settings
    """The settings in force; absent before mitmproxy has configured the addons."""
    _began: Mapping[str, object] | None = None
    """The values with which the hub started; None before."""
    _scripts: frozenset[str] = frozenset()
    """The scripts of the start, the hub among them beside an interface."""
    are_flags = False
    """Whether the options were given as flags of `edgehub`; messages then use the names of the flags."""

    def as_typed(self, text: str) -> str:
        """Return a message about options in the terms of the program that started the hub: flags, or options of
        mitmdump."""
        return as_flags(text) if self.are_flags else text

    def load(self, loader: Loader) -> None:
        for option in OPTIONS:
            loader.add_option(f"hub_{option.name}", option.kind, option.default, option.plain_text)

    def running(self) -> None:
        self._began = self._values()
        if "scripts" in ctx.options:
            self._scripts = frozenset(ctx.options.scripts)
            ctx.options.subscribe(self._refuse_unloading, ["scripts"])

    def configure(self, updated: set[str]) -> None:
        if not any(name.startswith("hub_") for name in updated):
            return
        try:
            refuse_unknown(ctx.options.deferred)
            settings = parse_settings(self._values())
            self._refuse_late()
        except ValueError as error:
            if not hasattr(self, "settings") and ctx.master.addons.get("scriptloader") is not None:
                # mitmproxy shows a script's error with its traceback, which does not help an operator.
                logger.critical("the hub cannot start: %s", self.as_typed(str(error)))
                raise SystemExit(1) from None
            raise exceptions.OptionsError(str(error)) from error
        self.settings = settings
        ctx.options.update(
            # The parts rely on these, however the hub is started: no connection opens before an addon has chosen the
            # server, and a quiet watch or exec (kubelet: 4 h) must not time out.
            connection_strategy="lazy",
            keep_host_header=True,
            tcp_timeout=5 * 3600,
            # An upgraded connection passes through as bytes: mitmproxy collects each WebSocket message to its end.
            websocket=False,
        )
        if "onboarding" in ctx.options:
            ctx.options.update(onboarding=False)

    def _refuse_unloading(self, options: OptManager, _updated: set[str]) -> None:
        """Raise OptionsError before mitmproxy unloads the hub, as it does also for a script that does not exist."""
        if gone := self._scripts.difference(options.scripts):
            raise exceptions.OptionsError(
                f"the hub runs with {', '.join(sorted(gone))}: add scripts to these"
            )

    def _values(self) -> dict[str, object]:
        return {option.name: getattr(ctx.options, f"hub_{option.name}") for option in OPTIONS}

    def _refuse_late(self) -> None:
        """Raise ValueError for a changed option that the hub reads once: an interface would show it as in force."""
        began = self._began
        if began is None:
            return
        late = [
            name
            for name, value in self._values().items()
            if value != began[name] and name not in LIVE_OPTIONS
        ]
        if late:
            raise ValueError(
                f"hub_{late[0]} cannot change while the hub runs: restart the hub with it; "
                f"it stays {began[late[0]]!r}"
            )
