"""The Event about a certificate that the hub lacks: one for each reason, on the Node."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from addons.certificates.certificate_events import event_of, teller
from tests.addons.support.scripted_client import ScriptedClient


def test_a_reason_that_comes_again_makes_the_same_event() -> None:
    first, later = (
        event_of("n1", "of this node", "it is denied", datetime(2026, 1, day, tzinfo=UTC)) for day in (1, 2)
    )
    other = event_of("n1", "of this node", "nobody answers", datetime(2026, 1, 1, tzinfo=UTC))
    assert first["metadata"] == later["metadata"] != other["metadata"]
    assert first["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1"}
    assert first["message"] == "the hub has no new certificate of this node: it is denied"


def test_a_long_reason_is_cut_at_what_the_api_takes() -> None:
    message = event_of("n1", "of this node", "x" * 5000, datetime.now(UTC))["message"]
    assert isinstance(message, str)
    assert len(message) == 1024


async def test_it_is_sent_to_the_namespace_of_what_has_none() -> None:
    client = ScriptedClient(lambda _: {})
    await teller(client, "n1", "of this node")("it is denied")
    (asked,) = client.asked
    assert (asked.method, asked.path) == ("POST", "/api/v1/namespaces/default/events")
    assert json.loads(asked.body)["reason"] == "NoCertificate"
