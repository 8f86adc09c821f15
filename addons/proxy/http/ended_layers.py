"""Takes layers apart whose connection has ended, and takes what still comes for them."""

from __future__ import annotations

from collections.abc import Iterable
from types import MethodType

from mitmproxy.flow import Error
from mitmproxy.proxy import events
from mitmproxy.proxy.layer import CommandGenerator, Layer
from mitmproxy.proxy.layers.http import HttpLayer
from mitmproxy.proxy.layers.http._hooks import (
    HttpErrorHook,
    HttpRequestHeadersHook,
    HttpRequestHook,
    HttpResponseHeadersHook,
)

BEFORE_END = (HttpRequestHeadersHook, HttpRequestHook, HttpResponseHeadersHook)
"""The hooks of a flow after which `response` or `error` follows."""


class EndedLayer(Layer):
    """Takes what comes after the end of a connection, and ends the requests on which addons still worked then.

    The layers that are gone would have called the hook `error` when the addons were done. Without it the hub would keep
    such a flow, and count it as under way, for as long as it runs.
    """

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        if isinstance(event, events.HookCompleted) and isinstance(event.command, BEFORE_END):
            flow = event.command.flow
            flow.error, flow.live = flow.error or Error("Client disconnected."), False
            yield HttpErrorHook(flow)


def layers_below(top: Layer) -> list[Layer]:
    """The layer and all that it leads to."""
    found: dict[int, Layer] = {}
    waiting = [top]
    while waiting:
        each = waiting.pop()
        if id(each) in found:
            continue
        found[id(each)] = each
        waiting += each.context.layers
        waiting += (value for value in vars(each).values() if isinstance(value, Layer))
        if isinstance(each, HttpLayer):
            waiting += [*each.streams.values(), *each.connections.values()]
    return list(found.values())


def take_apart(layers: Iterable[Layer]) -> None:
    """Drop what makes cycles of these layers. No event may reach them from here on."""
    for each in layers:
        each._paused = None
        each._paused_event_queue.clear()
        each.context.layers.clear()
        for name in [name for name, value in vars(each).items() if isinstance(value, MethodType)]:
            delattr(each, name)
