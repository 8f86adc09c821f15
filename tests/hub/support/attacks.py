"""A mix of attacks on a hub: `python -m tests.hub.support.attacks PLAIN_PORT TLS_PORT TOKEN TOKEN SECONDS [ATTACK…]`.
The first token may write Services, slices and ConfigMaps, the second nothing. The mix runs in its own process, so that
its cost is not the hub's and delays no other client. At the end it prints as JSON how often each attack was completed,
and how often the hub stopped it. Nothing leaves loopback."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from contextlib import AsyncExitStack

from h2.exceptions import ProtocolError

from tests.cloud.ports import LOOPBACK
from tests.hub.support.attack import (
    CHUNK,
    IN_DEFAULT,
    MUCH,
    PATIENCE,
    SLICES,
    Aim,
    Attack,
    asked,
    context_of,
    head,
    opened,
    poured,
    written,
)
from tests.hub.support.http2_attacks import (
    bytes_one_by_one,
    frames_for_nothing,
    held_lists,
    invented_settings,
    long_heads,
    taken_back_requests,
    unfinished_requests,
    unread_streams,
    window_floods,
)

IDLE = 500
"""Connections that send nothing."""
MERGE = "application/merge-patch+json"


async def refused_body(aim: Aim) -> None:
    begin = head("POST", "/api/v1/namespaces/default/pods", "", "Transfer-Encoding: chunked")
    await poured(aim.tls, context_of(), begin, b"10000\r\n" + CHUNK + b"\r\n")


async def endless_chunk_line(aim: Aim) -> None:
    begin = head("POST", "/api/v1/namespaces/default/pods", aim.reader, "Transfer-Encoding: chunked")
    await poured(aim.tls, context_of(), begin + b"1;", CHUNK)


async def tiny_chunks(aim: Aim) -> None:
    begin = head("POST", "/api/v1/namespaces/default/pods", aim.reader, "Transfer-Encoding: chunked")
    await poured(aim.tls, context_of(), begin, b"1\r\nx\r\n" * 4_096)


async def buffered_body(aim: Aim) -> None:
    begin = head("POST", "/api/v1/namespaces/default/events", "", f"Content-Length: {MUCH * len(CHUNK)}")
    await poured(aim.plain, None, begin, CHUNK)


async def endless_headers(aim: Aim) -> None:
    await poured(aim.tls, context_of(), b"GET / HTTP/1.1\r\n", b"X-A: b\r\n" * 8_192)


async def endless_line(aim: Aim) -> None:
    await poured(aim.tls, context_of(), b"GET /", CHUNK)


async def large_selector(aim: Aim) -> None:
    terms = "%2C".join(f"k{number}%3Dv" for number in range(400))
    await asked(aim, head("GET", f"{SLICES}?resourceVersion=0&labelSelector={terms}", aim.reader))
    await asked(aim, head("GET", f"{SLICES}?labelSelector={'a' * 4_000_000}", aim.reader))


async def idle_connections(aim: Aim) -> None:
    writers = []
    try:
        for _ in range(IDLE):
            writers.append((await asyncio.open_connection(LOOPBACK, aim.tls))[1])
        await asyncio.sleep(PATIENCE / 2)
    finally:
        for writer in writers:
            writer.transport.abort()


async def invented_namespaces(aim: Aim) -> None:
    target = f"/api/v1/namespaces/invented-{next(aim.numbers)}/services?watch=true&resourceVersion=0"
    async with opened(aim.tls, context_of()) as (reader, writer):
        writer.write(head("GET", target, aim.reader))
        await reader.read(1)


async def invented_selectors(aim: Aim) -> None:
    await asked(
        aim, head("GET", f"{SLICES}?resourceVersion=0&labelSelector=a%3Dx{next(aim.numbers)}", aim.reader)
    )


async def many_answers(aim: Aim) -> None:
    await asked(aim, head("GET", f"/version?x={next(aim.numbers)}", aim.nobody))


async def bad_tokens(aim: Aim) -> None:
    await asked(aim, head("GET", "/api/v1/services?resourceVersion=0", f"bad-{next(aim.numbers)}"))


async def labels(aim: Aim) -> None:
    """Send unknown names wherever metrics have labels for them."""
    number = next(aim.numbers)
    await asked(aim, head(f"VERB{number}", f"/apis/group{number}/v1/things{number}/{'n' * 2_000}"))


async def repeated_topology_keys(aim: Aim) -> None:
    """Write a Service whose annotation repeats keys thousands of times, with a slice of a thousand endpoints."""
    number = next(aim.numbers)
    service = {"metadata": {"name": "repeats"}, "spec": {"ports": [{"port": 80}]}}
    await written(aim, "POST", IN_DEFAULT + "services", service)
    endpoints = [{"addresses": [f"10.9.{n >> 8}.{n & 255}"], "nodeName": f"n{n}"} for n in range(1_000)]
    labels = {"kubernetes.io/service-name": "repeats"}
    made = {"metadata": {"name": "repeats", "labels": labels}, "addressType": "IPv4", "endpoints": endpoints}
    await written(aim, "POST", SLICES.replace("v1/", "v1/namespaces/default/"), made)
    keys = json.dumps([*["kubernetes.io/hostname"] * 9_000, f"k{number}", "*"])
    patch = {"metadata": {"annotations": {"topologyKeys": keys}}}
    await written(aim, "PATCH", IN_DEFAULT + "services/repeats", patch, MERGE)


async def many_labels(aim: Aim) -> None:
    """Write an object with tens of thousands of labels while a client watches by a label."""
    patch = {
        "metadata": {
            "labels": {f"k{n}": "" for n in range(20_000)},
            "annotations": {"n": str(next(aim.numbers))},
        }
    }
    await written(aim, "PATCH", IN_DEFAULT + "services/repeats", patch, MERGE)


async def large_events(aim: Aim) -> None:
    """Fill the histories of `watches_under_selectors`."""
    await written(aim, "POST", IN_DEFAULT + "configmaps", {"metadata": {"name": "large"}})
    patch = {"data": {"text": "x" * 100_000 + str(next(aim.numbers))}}
    await written(aim, "PATCH", IN_DEFAULT + "configmaps/large", patch, MERGE)


async def watches_under_selectors(aim: Aim) -> None:
    """Open sixteen sources of one token, each with a history."""
    async with AsyncExitStack() as stack:
        for number in range(16):
            target = f"{IN_DEFAULT}configmaps?watch=true&resourceVersion=0&labelSelector=%21x{number}"
            reader, writer = await stack.enter_async_context(opened(aim.tls, context_of()))
            writer.write(head("GET", target, aim.reader))
            await reader.read(1)
        await asyncio.sleep(PATIENCE / 2)


async def sources_of_the_node(aim: Aim) -> None:
    """Send lists as a process of the node, each with another selector."""
    target = f"{IN_DEFAULT}configmaps?resourceVersion=0&labelSelector=%21y{next(aim.numbers)}"
    async with opened(aim.plain) as (reader, writer):
        writer.write(head("GET", target))
        await reader.read(-1)


async def one_key_a_thousand_times(aim: Aim) -> None:
    """Send the longest selector that a target may have, over everything in the view."""
    number = next(aim.numbers)
    terms = ",".join(f"k!={number + n}" for n in range(4_000))[:7_000].rpartition(",")[0]
    await asked(aim, head("GET", f"{SLICES}?resourceVersion=0&labelSelector={terms}", aim.reader))
    terms = ",".join(f"k{number}{n}!=v" for n in range(100))
    await asked(aim, head("GET", f"{SLICES}?resourceVersion=0&labelSelector={terms}", aim.reader))


async def long_accept(aim: Aim) -> None:
    """Send long Accept headers, before the hub knows the caller."""
    accept = "Accept: " + ",".join(f"application/json;q=0.{n % 10};a={n}" for n in range(2_200))
    for token in ("bad", aim.reader):
        await asked(aim, head("GET", "/api/v1/services?resourceVersion=0", token, accept))


async def body_on_a_view(aim: Aim) -> None:
    long = "X-Long: " + "x" * 30_000
    for token in ("bad", aim.reader):
        request = head("GET", "/api/v1/services?resourceVersion=0", token, long, "Content-Length: 2")
        await asked(aim, request + b"{}")


async def endless_handshake(aim: Aim) -> None:
    """Send a first TLS message that announces 16 MB."""
    record = b"\x16\x03\x01\x40\x00"
    begin = record + b"\x01\xff\xff\xff" + bytes(0x4000 - 4)
    await poured(aim.tls, None, begin, record + bytes(0x4000))


async def unread_lists(aim: Aim) -> None:
    """Request lists over HTTP/1.1 without reading a byte, each on its own connection."""
    async with AsyncExitStack() as stack:
        for _ in range(100):
            _, writer = await stack.enter_async_context(opened(aim.tls, context_of()))
            writer.write(head("GET", SLICES + "?resourceVersion=0", aim.reader))
        await asyncio.sleep(PATIENCE / 2)


ATTACKS: tuple[tuple[Attack, float], ...] = (
    (refused_body, 0.5),
    (endless_chunk_line, 0.5),
    (tiny_chunks, 0.5),
    (buffered_body, 0.5),
    (endless_headers, 0.5),
    (endless_line, 0.5),
    (large_selector, 0.5),
    (idle_connections, 1.0),
    (unread_streams, 1.0),
    (invented_namespaces, 0.05),
    (invented_selectors, 0.05),
    (many_answers, 0.05),
    (bad_tokens, 0.05),
    (labels, 0.05),
    (repeated_topology_keys, 0.5),
    (many_labels, 1.0),
    (large_events, 0.2),
    (watches_under_selectors, 0.5),
    (sources_of_the_node, 0.2),
    (one_key_a_thousand_times, 0.5),
    (long_accept, 0.5),
    (body_on_a_view, 0.1),
    (taken_back_requests, 0.5),
    (frames_for_nothing, 0.5),
    (bytes_one_by_one, 0.5),
    (invented_settings, 0.5),
    (window_floods, 0.5),
    (unfinished_requests, 0.5),
    (long_heads, 0.5),
    (held_lists, 0.5),
    (unread_lists, 0.5),
    (endless_handshake, 0.5),
)
"""Each attack, and the seconds between its repetitions."""


async def repeat(aim: Aim, attack: Attack, pause: float) -> None:
    """Repeat an attack until cancelled."""
    while True:
        try:
            async with asyncio.timeout(PATIENCE):
                await attack(aim)
            aim.carried[attack.__name__] += 1
        except (OSError, EOFError, ProtocolError):
            # The hub cut or delayed the attack, as it should.
            aim.stopped[attack.__name__] += 1
        await asyncio.sleep(pause)


async def run(aim: Aim, seconds: float, names: list[str]) -> None:
    chosen = [each for each in ATTACKS if not names or each[0].__name__ in names]
    tasks = [asyncio.create_task(repeat(aim, attack, pause)) for attack, pause in chosen]
    done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for each in tasks:
        each.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for each in done:
        each.result()


def main(plain: str, tls: str, reader: str, nobody: str, seconds: str, *names: str) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    aim = Aim(int(plain), int(tls), reader, nobody)
    asyncio.run(run(aim, float(seconds), list(names)))
    names_of_all = (attack.__name__ for attack, _ in ATTACKS)
    print(json.dumps({name: (aim.carried[name], aim.stopped[name]) for name in names_of_all}))


if __name__ == "__main__":
    main(*sys.argv[1:])
