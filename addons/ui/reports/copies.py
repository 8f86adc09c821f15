"""The reports `sources`, `views` and `watchers`: what the hub keeps of the cloud, and which clients watch it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from addons.pool.peer_reader import PeerReader
from addons.ui.running_hub import RunningHub
from addons.views.source import OpenView, Source, ViewKey
from kube.reflector.upstream import Upstream


def sources(hub: RunningHub) -> list[dict[str, Any]]:
    """Each list and watch of the cloud. `age` and `nextTry` are seconds."""
    return [_source(source) for source in hub.sources]


def views(hub: RunningHub) -> list[dict[str, Any]]:
    """The views of each component, with or without an open watch."""
    return [_view(source, key, opened) for source, key, opened in _opened(hub)]


def watchers(hub: RunningHub) -> list[dict[str, Any]]:
    """Open watches, one row for each view; `unread` is how many events the slowest of them still has to send."""
    return [
        {
            **{
                name: row[name]
                for name in ("component", "path", "namespace", "labelSelector", "fieldSelector")
            },
            "watchers": row["watchers"],
            "unread": max(watcher.unread for watcher in opened.view.watchers),
            "version": row["version"],
            "filters": row["filters"],
        }
        for source, key, opened in _opened(hub)
        if opened.view.watchers
        for row in (_view(source, key, opened),)
    ]


def _opened(hub: RunningHub) -> Iterator[tuple[Source, ViewKey, OpenView]]:
    return ((source, key, opened) for source in hub.sources for key, opened in list(source.views.items()))


def _source(source: Source) -> dict[str, Any]:
    reflector, now = source.reflector, time.monotonic()
    return {
        "path": source.list_watch.path,
        "labelSelector": source.list_watch.label_selector,
        "fieldSelector": source.list_watch.field_selector,
        "encoding": source.list_watch.encoding,
        "metadataOnly": source.list_watch.metadata_only,
        "identity": source.user or "hub",
        "server": reflector.upstream.server if isinstance(reflector.upstream, PeerReader) else "cloud",
        "from": _from(reflector.upstream),
        "state": reflector.state,
        "error": str(reflector.error) if reflector.error else "",
        "complete": source.store.complete,
        "version": source.store.version,
        "objects": len(source.store),
        "age": round(now - reflector.heard, 1) if reflector.heard else None,
        "nextTry": round(max(0.0, reflector.retry_at - now), 1) if reflector.error else None,
        "lists": reflector.lists,
        "watches": reflector.watches,
        "views": len(source.views),
    }


def _from(upstream: Upstream | None) -> str:
    """The server that a source reads from, in words: `cloud`, `leader n2`, a relay; "" where it has sent no request
    yet."""
    if not isinstance(upstream, PeerReader):
        return "cloud"
    return upstream.leader.name if upstream.leader is not None else upstream.server


def _view(source: Source, key: ViewKey, opened: OpenView) -> dict[str, Any]:
    unchanged, changed, hidden = opened.view.projection.outcomes()
    return {
        "component": key.component,
        "verb": key.verb,
        "path": source.list_watch.path,
        "encoding": source.list_watch.encoding,
        "namespace": key.scope.namespace,
        "labelSelector": key.scope.labels.canonical,
        "fieldSelector": key.scope.fields.canonical,
        "form": key.form.name,
        "filters": [filter_.name for filter_ in opened.filters],
        "kept": unchanged,
        "changed": changed,
        "hidden": hidden,
        "watchers": len(opened.view.watchers),
        "version": opened.view.version,
        "oldest": opened.view.ring.oldest,
        "evaluations": opened.view.projection.evaluations,
    }
