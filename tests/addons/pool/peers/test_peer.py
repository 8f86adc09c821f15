"""The choice between peers and the cloud, and the contents of a peer's response to a probe."""

from __future__ import annotations

import pytest

from addons.link.servers import Server
from addons.pool.peers.choice import CLOUD, Choice, choose
from addons.pool.peers.peer import PeerAnswer, PeerHub, read_answer
from addons.requests.headers import AGE_HEADER, DEPUTIES_HEADER, LENDERS_HEADER, SHARES_HEADER
from kube.http.client import RawResponse
from kube.peers import LeaderHub

NOW = 100.0


@pytest.mark.parametrize(
    ("order", "cloud_is_up", "cloud_from", "expected"),
    [
        (["a", "b"], True, 0.0, "a"),
        (["a", "b"], False, 0.0, "a"),
        (["a!", "b"], True, 0.0, "b"),
        (["a~", "b"], True, 0.0, "b"),
        (["a9", "b"], True, 0.0, "b"),
        (["a9", "b!"], True, 0.0, CLOUD),
        (["a9", "b!"], True, NOW + 5, "a"),
        (["a9", "b3"], False, 0.0, "b"),
        (["a!", "b~"], True, NOW + 5, Choice(None, 1.0)),
        (["a!", "b~"], True, NOW + 0.5, Choice(None, 0.5)),
        (["a!", "b~"], True, NOW, CLOUD),
        (["a!", "b~"], False, NOW + 5, CLOUD),
        ([], True, 0.0, CLOUD),
        ([], True, NOW + 2, Choice(None, 2.0)),
    ],
)
def test_the_choice_between_leaders_and_the_cloud(
    order: list[str], cloud_is_up: bool, cloud_from: float, expected: str | Choice
) -> None:
    def leader(text: str) -> PeerHub:
        """Parse a leader: `a` is usable, `a!` has failed, `a~` is usable later, `a9` lost the cloud 9 s ago."""
        made = PeerHub.at(Server("https", "10.0.0.1", 10269, text[0]))
        made.said = PeerAnswer(age=float(text[1:] or 0) if text[1:].isdecimal() else 0.0)
        made.usable_from = NOW + 1 if "~" in text else 0.0
        if "!" in text:
            made.failed("refused", NOW)
        return made

    states = [leader(each) for each in order]
    found = choose(states, NOW, cloud_is_up=cloud_is_up, cloud_from=cloud_from)
    if isinstance(expected, Choice):
        assert found == expected
    else:
        assert found.peer is not None
        assert (found.peer.node, found.wait) == (expected, 0.0)


REFUSED = b'{"kind":"Status","message":"not in this pool"}'
LONE = b'{"kind":"Status","message":"local proxy does not support request(GET /livez)"}'


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (RawResponse(404, {}, b""), PeerAnswer("", 0.0, ())),
        (RawResponse(200, {AGE_HEADER: "7"}, b"ok"), PeerAnswer("", 7.0, ())),
        (RawResponse(404, {AGE_HEADER: "-7"}, b""), PeerAnswer("", 0.0, ())),
        (RawResponse(404, {AGE_HEADER: "9" * 999}, b""), PeerAnswer("", 999999999.0, ())),
        (
            RawResponse(404, {DEPUTIES_HEADER: "d/10.0.0.4,,e"}, b""),
            PeerAnswer("", 0.0, (LeaderHub("d", "10.0.0.4"),)),
        ),
        (
            RawResponse(404, {LENDERS_HEADER: "l/10.0.0.5,nonsense"}, b""),
            PeerAnswer("", 0.0, (), (LeaderHub("l", "10.0.0.5"),)),
        ),
        (
            RawResponse(404, {SHARES_HEADER: "nodes,a.b,"}, b""),
            PeerAnswer("", 0.0, (), (), frozenset({"nodes", "a.b"})),
        ),
        (RawResponse(403, {}, REFUSED), PeerAnswer("not in this pool", 0.0, ())),
        # A YurtHub without a cloud, and a hub that reports its outage.
        (RawResponse(400, {}, LONE), PeerAnswer("", 1.0, ())),
        (RawResponse(400, {AGE_HEADER: "0"}, REFUSED), PeerAnswer("not in this pool", 0.0, ())),
        (RawResponse(400, {}, REFUSED), PeerAnswer("not in this pool", 0.0, ())),
    ],
)
def test_a_peers_response_to_a_probe_is_parsed(answer: RawResponse, expected: PeerAnswer) -> None:
    assert read_answer(answer) == expected
