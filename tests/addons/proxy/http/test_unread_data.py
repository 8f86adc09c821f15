"""What clients do not read: the one with the most is given up, and those that read are left alone."""

from __future__ import annotations

import pytest
from h2.config import H2Configuration
from mitmproxy.proxy.layers.http._http_h2 import BufferedH2Connection

from addons.proxy.http.unread_data import MAX_UNREAD, UnreadData, unread


class Client:
    """Notes that it was given up."""

    is_given_up = False

    def give_up(self) -> None:
        self.is_given_up = True


@pytest.mark.parametrize(
    ("sizes", "given_up"),
    [
        ((40, 60), ()),
        ((60, 41), (0,)),
        ((10, 91), (1,)),
        ((70, 20, 20), (0,)),
        ((101,), (0,)),
    ],
)
def test_the_client_with_the_most_is_given_up(sizes: tuple[int, ...], given_up: tuple[int, ...]) -> None:
    held, clients = UnreadData(100), [Client() for _ in sizes]
    for client, size in zip(clients, sizes, strict=True):
        held.hold(client, size)
    assert tuple(number for number, each in enumerate(clients) if each.is_given_up) == given_up
    assert held.total <= 100


def test_a_client_that_has_read_all_counts_no_more() -> None:
    held, first, second = UnreadData(100), Client(), Client()
    held.hold(first, 90)
    held.hold(first, 0)
    held.hold(second, 90)
    assert not first.is_given_up
    assert not second.is_given_up


def test_what_the_windows_have_no_room_for_is_unread() -> None:
    client = BufferedH2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    client.send_headers(1, [(":method", "POST"), (":path", "/"), (":scheme", "http"), (":authority", "a")])
    client.send_data(1, bytes(65_535))
    assert unread(client) == 0
    client.send_data(1, bytes(100_000))
    assert unread(client) == 100_000
    assert MAX_UNREAD > 100_000
