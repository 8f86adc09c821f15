"""Probes: the health of a server after each response, the interval of probes, and the notified listeners."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterator

import pytest

from addons.link.health import Condition
from addons.link.probes import MIN_PROBE_GAP, PROBE_PATH, RECOVERY_INTERVAL, _reason
from addons.link.timeouts import PROBE_INTERVAL, PROBE_TIMEOUT
from addons.telemetry import metrics
from kube.http.client import Unreachable
from tests.addons.support.observed import notifications_of, until, value_of
from tests.addons.support.probed_server import BROKEN, OK, A, World


@pytest.fixture
def server() -> Iterator[World]:
    world = World()
    yield world
    world.probes.close()


async def probed(server: World, script: list[int | Exception]) -> None:
    """Return when the server has answered its scripted probes, in virtual time."""
    server.start()
    try:
        for says in script:
            server.says = says
            asked = len(server.asked)
            await until(functools.partial(server.was_asked_since, asked), 60)
        await asyncio.sleep(0)
    finally:
        server.probes.close()


REFUSED = 403
GONE = Unreachable("no route")


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("script", "condition"),
    [
        ([OK], Condition.UP),
        ([REFUSED], Condition.UP),
        ([OK, BROKEN], Condition.UP),
        ([OK, BROKEN, BROKEN], Condition.DOWN),
        ([GONE], Condition.DOWN),
        ([OK, GONE], Condition.DOWN),
        ([GONE, OK], Condition.RECOVERING),
        ([GONE, OK, OK], Condition.UP),
        ([GONE, OK, BROKEN], Condition.DOWN),
        ([GONE, OK, GONE, OK], Condition.RECOVERING),
        ([GONE, OK, REFUSED], Condition.UP),
    ],
)
async def test_the_response_to_a_probe_decides_the_condition_of_a_server(
    server: World, script: list[int | Exception], condition: Condition
) -> None:
    await probed(server, script)
    assert server.health.condition is condition
    assert set(server.asked) == {("GET", PROBE_PATH)}
    assert server.servers == [str(A)], "each probe names its server"


@pytest.mark.looptime
async def test_a_server_that_is_down_is_probed_more_often(server: World) -> None:
    loop = asyncio.get_running_loop()
    begin_ = loop.time()
    await probed(server, [OK, OK])
    assert loop.time() - begin_ == pytest.approx(PROBE_INTERVAL, abs=0.2)
    for seen in (GONE, BROKEN):
        begin_ = loop.time()
        await probed(server, [seen, seen])
        assert loop.time() - begin_ == pytest.approx(RECOVERY_INTERVAL, abs=0.2)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(111, "Connect call failed"), "[Errno 111] Connect call failed"),
        (
            OSError(2, "certificate-authority of the kubeconfig: No such file or directory", "/ca.crt"),
            "[Errno 2] certificate-authority of the kubeconfig: No such file or directory: '/ca.crt'",
        ),
        (
            ConnectionError("Certificate verify failed: certificate has expired"),
            "Certificate verify failed: certificate has expired; is it signed by the certificate-authority of the "
            "kubeconfig, for this address, and in date?",
        ),
    ],
)
def test_an_unreachable_servers_reason_is_the_connect_error(error: OSError, expected: str) -> None:
    unreachable = Unreachable("GET")
    unreachable.__cause__ = error
    assert _reason(unreachable) == expected


@pytest.mark.looptime
async def test_probing_continues_after_an_unexpected_error(server: World) -> None:
    """A probe task that ends would freeze its server's health for good, without a log line."""
    await probed(server, [RuntimeError("unforeseen"), GONE])
    assert server.health.condition is Condition.DOWN


@pytest.mark.looptime
async def test_a_probe_of_a_server_that_is_down_allows_time_for_a_handshake(server: World) -> None:
    """A satellite link needs three round trips more than a probe of an open connection."""
    server.says = GONE
    server.start()
    await until(lambda: not server.health.usable, 60)
    server.says, server.delay = OK, PROBE_INTERVAL + PROBE_TIMEOUT - 0.1
    await until(lambda: server.health.usable, 60)


@pytest.mark.looptime
async def test_recovery_notifies_listeners(server: World) -> None:
    count = notifications_of(server.cloud.changed)
    server.start()
    server.says = GONE
    await asyncio.sleep(0.5)
    assert (count(), value_of(metrics.SERVER_UP.labels(str(A)))) == (1, 0)
    server.says = OK
    await asyncio.sleep(3)
    assert (count(), value_of(metrics.SERVER_UP.labels(str(A)))) == (2, 1)
    assert server.cut == [A]


# -- between the intervals -----------------------------------------------------------------------------------------


@pytest.mark.looptime
async def test_a_server_that_breaks_a_connection_is_probed_at_once(server: World) -> None:
    """A load balancer without servers accepts and closes: it was noticed only by the next probe, 3 s later."""
    loop = asyncio.get_running_loop()
    server.start()
    await until(lambda: len(server.asked) == 1, 60)
    await asyncio.sleep(1)
    server.says, began = GONE, loop.time()
    server.probes.suspect(server.health)
    await until(lambda: not server.health.usable, 60)
    assert loop.time() - began < 0.1


@pytest.mark.looptime
async def test_many_broken_connections_cause_four_probes_a_second_at_most(server: World) -> None:
    server.start()
    for _ in range(1000):
        server.probes.suspect(server.health)
        await asyncio.sleep(0.01)
    assert len(server.asked) <= 10 / MIN_PROBE_GAP + 2


@pytest.mark.looptime
@pytest.mark.parametrize(("says", "is_up"), [(OK, True), (GONE, False)])
async def test_a_probe_confirms_if_a_server_is_up(server: World, says: int | Exception, is_up: bool) -> None:
    server.start()
    await until(lambda: len(server.asked) == 1, 60)
    server.says = says
    assert await server.probes.confirm() is is_up
    assert len(server.asked) == 2


@pytest.mark.looptime
async def test_a_probe_that_began_before_the_question_confirms_nothing(server: World) -> None:
    server.start()
    server.delay = 1.0
    await until(lambda: len(server.asked) == 1, 60)
    confirming = asyncio.create_task(server.probes.confirm())
    await asyncio.sleep(0.5)
    server.says, server.delay = GONE, 0.0
    assert await confirming is False
    assert len(server.asked) == 2


# -- faults of the node --------------------------------------------------------------------------------------------

NO_DESCRIPTOR = "[Errno 24] Too many open files"
NO_PORT = "[Errno 99] Cannot assign requested address"
NO_NAME = "[Errno -3] Temporary failure in name resolution"


@pytest.mark.looptime
@pytest.mark.parametrize("message", [NO_DESCRIPTOR, NO_PORT, NO_NAME])
async def test_a_node_without_file_descriptors_leaves_its_servers_up(
    server: World, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    """1,024 open descriptors once cut all healthy watches, and filled the log with 14,000 lines a second."""
    server.start()
    server.health.connections = 1
    failures = [metrics.CONNECT_FAILURES.labels(fault) for fault in ("node", "resolver")]
    before = sum(map(value_of, failures))
    server.says, server.failure = GONE, message
    for _ in range(3000):
        server.probes.connect_failed(server.health, message)
        await asyncio.sleep(0.01)
    assert server.health.usable
    assert not server.cut
    assert sum(map(value_of, failures)) - before >= 3000
    assert len(caplog.records) == 1, "one line a minute"
    assert len(server.asked) > 5


@pytest.mark.looptime
@pytest.mark.parametrize(("connections", "is_up"), [(0, False), (1, True)])
async def test_a_failed_dns_lookup_marks_a_server_without_connections_as_down(
    server: World, connections: int, is_up: bool
) -> None:
    """A hub that starts without a cloud cannot resolve its name, and must serve clients from copies."""
    server.health.connections = connections
    server.says, server.failure = GONE, NO_NAME
    server.start()
    await asyncio.sleep(1)
    assert server.health.usable is is_up


@pytest.mark.looptime
async def test_an_unreachable_server_goes_down_despite_a_fault_of_the_node(server: World) -> None:
    server.health.connections = 1
    server.start()
    server.probes.connect_failed(server.health, NO_DESCRIPTOR)
    server.says = GONE
    await until(lambda: not server.health.usable, 60)


@pytest.mark.looptime
@pytest.mark.parametrize(("code", "asked"), [(429, 1), (503, 2)])
async def test_retry_after_delays_the_next_probe(server: World, code: int, asked: int) -> None:
    """The first two errors in a row are still probed as usual, so that an outage is known."""
    server.says, server.asks_for = code, "30"
    server.start()
    await asyncio.sleep(29)
    assert len(server.asked) == asked
    await asyncio.sleep(5)
    assert len(server.asked) > asked


@pytest.mark.looptime
async def test_a_server_that_refuses_the_nodes_identity_is_up_but_unusable(server: World) -> None:
    changed = server.cloud.changed.wait()
    await probed(server, [401])
    assert (server.health.condition, server.health.refuses_node) == (Condition.UP, True)
    assert changed.done()
    changed = server.cloud.changed.wait()
    await probed(server, [403])
    assert not server.health.refuses_node, "it knows the node"
    assert changed.done()
