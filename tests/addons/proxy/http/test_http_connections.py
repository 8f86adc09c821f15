"""What a connection of HTTP/2 tells its client, and what a layer's state keeps alive."""

from __future__ import annotations

import weakref
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection

from addons.proxy.http.http_connections import STREAMS_PER_CLIENT, HubH2Connection, OwnMethod


def test_an_http2_client_is_told_that_it_may_have_as_many_streams() -> None:
    made = HubH2Connection(H2Configuration(client_side=False))
    made.initiate_connection()  # type: ignore[no-untyped-call]  # as mitmproxy has it
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    client.receive_data(made.data_to_send())
    assert client.remote_settings.max_concurrent_streams == STREAMS_PER_CLIENT


class Machine:
    """A state of its own, as mitmproxy's layers have one."""

    state: Any = OwnMethod()

    def __init__(self) -> None:
        self.state = self.begun

    def begun(self) -> str:
        self.state = self.done
        return "begun"

    def done(self) -> str:
        return "done"


def test_a_method_as_an_attribute_is_no_cycle() -> None:
    machine = Machine()
    assert (machine.state(), machine.state()) == ("begun", "done")
    assert machine.state == machine.done
    seen = weakref.ref(machine)
    del machine
    assert seen() is None
