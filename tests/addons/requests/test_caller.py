"""Who is lent the hub's identity: a table of listeners, addresses, certificates and headers."""

import pytest

from addons.requests.caller import WEBSOCKET_BEARER, Caller, Lending, Listener, Peer, caller_of

LOCAL = Peer(Listener.PLAIN, is_loopback=True, is_this_node=False)
FAR = Peer(Listener.PLAIN, is_loopback=False, is_this_node=False)
POD = Peer(Listener.TLS, is_loopback=False, is_this_node=False)
LOCAL_POD = Peer(Listener.TLS, is_loopback=True, is_this_node=False)
NODE = Peer(Listener.TLS, is_loopback=False, is_this_node=True)
HUB = Peer(Listener.INTERNAL, is_loopback=True, is_this_node=False)


@pytest.mark.parametrize(
    ("peer", "headers", "lending"),
    [
        (LOCAL, {}, Lending.HUB),
        (FAR, {}, Lending.NONE),
        (POD, {}, Lending.NONE),
        (LOCAL_POD, {}, Lending.NONE),
        (NODE, {}, Lending.HUB),
        (HUB, {}, Lending.HUB),
        (LOCAL, {"authorization": "Bearer t"}, Lending.OWN),
        (POD, {"authorization": "Bearer t"}, Lending.OWN),
        (NODE, {"authorization": "Bearer t"}, Lending.OWN),
        (HUB, {"authorization": "Bearer t"}, Lending.OWN),
        (LOCAL, {"authorization": "garbage"}, Lending.OWN),
        (LOCAL, {"sec-websocket-protocol": f"v5.channel.k8s.io, {WEBSOCKET_BEARER}dG9rZW4"}, Lending.OWN),
        (LOCAL, {"sec-websocket-protocol": "v5.channel.k8s.io"}, Lending.HUB),
    ],
)
def test_lending(peer: Peer, headers: dict[str, str], lending: Lending) -> None:
    assert caller_of(peer, headers).lending is lending


def test_impersonation_is_noticed_however_it_is_spelled() -> None:
    assert caller_of(LOCAL, {"Impersonate-User": "admin"}).impersonates
    assert caller_of(LOCAL, {"impersonate-extra-scopes": "x"}).impersonates
    assert not caller_of(LOCAL, {"x-impersonate-user": "admin"}).impersonates


def test_a_token_is_not_shown() -> None:
    assert "secret" not in repr(Caller(Lending.OWN, "Bearer secret"))
