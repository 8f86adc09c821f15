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
    layers: dict[int, Layer] = {}
    waiting = [top]
    while waiting:
        layer = waiting.pop()
        if id(layer) in layers:
            continue
        layers[id(layer)] = layer
        waiting += layer.context.layers
        waiting += (value for value in vars(layer).values() if isinstance(value, Layer))
        if isinstance(layer, HttpLayer):
            waiting += [*layer.streams.values(), *layer.connections.values()]
    return list(layers.values())


def take_apart(layers: Iterable[Layer]) -> None:
    """Drop what makes cycles of these layers. No event may reach them from here on."""
    for layer in layers:
        layer._paused = None
        layer._paused_event_queue.clear()
        layer.context.layers.clear()
        for name in [name for name, value in vars(layer).items() if isinstance(value, MethodType)]:
            delattr(layer, name)
