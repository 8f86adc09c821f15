"""After any sequence of changes by cloud, inputs, rules and clients, every client has the true state."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kube.store import change_log as log_module
from kube.store.scope import Scope
from kube.wire.encoding import Encoding
from tests.kube.support.toys import scope
from tests.kube.support.world import INPUTS, RULES, SCOPES, VERDICTS, World

KEYS = st.sampled_from([(namespace, name) for namespace in "ab" for name in "xy"])
PLENTY = 10**9

type Operation = tuple[str, tuple[object, ...]]

NUMBERS = st.integers(0, 2)
VIEWS = st.tuples(st.sampled_from(SCOPES), st.booleans(), st.sampled_from(["p", "p", "q", ""]))


def operation(name: str, *arguments: st.SearchStrategy[object]) -> st.SearchStrategy[Operation]:
    return st.tuples(st.just(name), st.tuples(*arguments))


PUT = operation(
    "put",
    KEYS,
    st.sampled_from(["", "web", "db"]),
    st.sampled_from(["10.0.0.1", "None"]),
    st.sampled_from(["i", ""]),
)
SET_INPUT = operation(
    "set_input", st.sampled_from(RULES[1:]), st.sampled_from(INPUTS), st.sampled_from([*VERDICTS, ""])
)
OPEN_LIST = operation("open_list", NUMBERS, st.booleans(), st.booleans())
OPERATIONS = st.one_of(
    *[PUT] * 2,
    operation("delete", KEYS),
    *[SET_INPUT] * 2,
    operation("switch", NUMBERS, st.sampled_from(RULES)),
    operation("elsewhere"),
    operation("bookmark"),
    operation("unlink"),
    operation("resume"),
    operation("relist"),
    operation("back_up"),
    operation("restore"),
    operation("send_bookmark", NUMBERS),
    OPEN_LIST,
    operation("open_watch_list", NUMBERS),
    *[operation("watch", NUMBERS)] * 2,
    operation("close", NUMBERS),
    operation("end_watch", NUMBERS),
    operation("amend", KEYS, st.sampled_from(["10.0.0.3", "10.0.0.4"])),
    *[operation("apply_response", KEYS)] * 2,
    *[operation("read", NUMBERS)] * 2,
    *[operation("write")] * 2,
    operation("crash", st.sampled_from(["", *VERDICTS])),
    operation("turn"),
)


AHEAD: list[Operation] = [("write", ()), ("put", (("a", "x"), "", "10.0.0.1", "i")), ("unlink", ())]
"""Operations after which a list of the cloud is ahead of the copy."""


@pytest.mark.parametrize("encoding", Encoding)
@example(  # an input that changes, and changes back before the next process reads it
    views=[(scope(), False, "p")],
    log_bytes=PLENTY,
    operations=[
        *[("open_list", (0, True, False)), ("watch", (0,)), ("write", ()), ("set_input", ("p", "i", "drop"))],
        *[("read", (0,)), ("close", (0,)), ("crash", ("keep",))],
    ],
)
@example(  # a list after an edit of the rules and a local write, with no newer version of the cloud
    views=[(scope(), False, "p")],
    log_bytes=PLENTY,
    operations=[
        *[
            ("put", (("a", "x"), "", "10.0.0.1", "")),
            ("switch", (0, "")),
            ("amend", (("a", "x"), "10.0.0.3")),
        ],
        *[("open_list", (0, True, False)), ("watch", (0,))],
    ],
)
@example(  # a cloud restored to a moment before an accepted write
    views=[(scope(), False, "p")],
    log_bytes=PLENTY,
    operations=[
        *[
            ("unlink", ()),
            ("back_up", ()),
            ("put", (("b", "x"), "", "10.0.0.1", "i")),
            ("apply_response", (("b", "x"),)),
        ],
        *[("open_list", (0, False, False)), ("restore", ())],
    ],
)
@example(  # the same, after a restart of the hub
    views=[(scope(), False, "p")],
    log_bytes=PLENTY,
    operations=[
        *[
            ("unlink", ()),
            ("back_up", ()),
            ("put", (("a", "x"), "", "10.0.0.1", "i")),
            ("apply_response", (("a", "x"),)),
        ],
        *[("crash", ("",)), ("restore", ())],
    ],
)
@example(  # a new object of such a write, which a client holds
    views=[(scope(), False, "p")],
    log_bytes=PLENTY,
    operations=[
        *[
            ("restore", ()),
            ("unlink", ()),
            ("put", (("a", "x"), "", "10.0.0.1", "i")),
            ("apply_response", (("a", "x"),)),
        ],
        *[("open_watch_list", (0,)), ("crash", ("",)), ("restore", ())],
    ],
)
@example(  # such an object, listed after a restart, that leaves its selector
    views=[(scope(labels="!app"), False, "p")],
    log_bytes=PLENTY,
    operations=[
        *[("delete", (("a", "x"),)), ("delete", (("a", "y"),)), ("write", ()), ("crash", ("",))],
        *[("unlink", ()), ("put", (("a", "y"), "", "10.0.0.1", "i")), ("apply_response", (("a", "y"),))],
        *[("put", (("a", "y"), "web", "10.0.0.1", "i")), ("open_list", (0, False, False))],
    ],
)
@example(  # a deletion that the cloud accepted, and a client that is ahead of the copy of the process before
    views=[(scope(), False, "")],
    log_bytes=PLENTY,
    operations=[
        *AHEAD,
        ("delete", (("a", "y"),)),
        *[("open_list", (0, False, False)), ("crash", ("",)), ("apply_response", (("a", "y"),))],
    ],
)
@example(  # the same for a client that watches then
    views=[(scope(), False, "")],
    log_bytes=PLENTY,
    operations=[
        *AHEAD,
        ("delete", (("a", "y"),)),
        *[
            ("open_list", (0, False, False)),
            ("crash", ("",)),
            ("watch", (0,)),
            ("apply_response", (("a", "y"),)),
        ],
    ],
)
@example(  # an edit of the rules that changes no filter, for a client that is ahead
    views=[(scope(), False, "")],
    log_bytes=PLENTY,
    operations=[
        *AHEAD,
        ("open_list", (0, False, False)),
        *[("crash", ("",)), ("watch", (0,)), ("switch", (0, ""))],
    ],
)
@example(  # an edit that changes them
    views=[(scope(), False, "")],
    log_bytes=PLENTY,
    operations=[
        *AHEAD,
        ("open_list", (0, False, False)),
        *[("crash", ("",)), ("watch", (0,)), ("switch", (0, "p"))],
    ],
)
@example(  # a field that a selector reads and a filter overwrites
    views=[(scope(fields="spec.clusterIP!=None"), False, "p")],
    log_bytes=PLENTY,
    operations=[
        *[("set_input", ("p", "i", "10.9.9.1")), ("unlink", ()), ("open_watch_list", (0,))],
        *[("put", (("a", "x"), "", "None", "i")), ("apply_response", (("a", "x"),))],
    ],
)
@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    views=st.lists(VIEWS, min_size=1, max_size=3),
    log_bytes=st.sampled_from([PLENTY, PLENTY, 2000, 500, 1]),
    operations=st.lists(OPERATIONS, max_size=10) | st.lists(OPERATIONS, min_size=15, max_size=50),
)
def test_every_client_ends_with_the_expected_state(
    encoding: Encoding, views: list[tuple[Scope, bool, str]], log_bytes: int, operations: list[Operation]
) -> None:
    async def run_callbacks() -> None:
        """Run an iteration of the loop, in which history beyond its bounds is dropped."""
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def live(world: World) -> None:
        for name, arguments in operations:
            if name == "turn":
                await run_callbacks()
            else:
                getattr(world, name)(*arguments)
        world.check()
        world.end()

    async def run() -> None:
        await live(World(encoding, views, log_bytes < PLENTY))

    with patch.object(log_module, "TRIM_DELAY", 0.0), patch.object(log_module, "LOG_MAX_BYTES", log_bytes):
        asyncio.run(run())
