"""A caller with a token at the TLS port of a hub that starts without its cloud: the cloud's last review is used."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
import urllib3

from kube.json_type import Json
from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.cloud.rights import account, rights, rule
from tests.hub.support.objects import headless
from tests.hub.support.process import SLACK, Hub, started

ACCOUNT = "proxy"
CORE_EVENTS = "/api/v1/namespaces/{}/events"
EVENTS = "/apis/events.k8s.io/v1/namespaces/{}/events"


class Pod:
    """A client with a token, like kube-proxy."""

    def __init__(self, hub: Hub, token: str) -> None:
        self._hub = hub
        self._headers = {"Authorization": f"Bearer {token}", "User-Agent": "kube-proxy/v1"}
        self._pool: urllib3.PoolManager | None = None

    async def get(self, path: str) -> tuple[int, Json]:
        return await self._ask("GET", path)

    async def post(self, path: str, body: Json) -> tuple[int, Json]:
        return await self._ask("POST", path, json.dumps(body))

    async def _ask(self, method: str, path: str, body: str | None = None) -> tuple[int, Json]:
        headers = {**self._headers, "Content-Type": "application/json"}
        url = self._hub.tls_url + path
        if self._pool is None:
            self._pool = urllib3.PoolManager(retries=False, ca_certs=str(self._hub.authority), timeout=20.0)
        answer = await asyncio.to_thread(self._pool.request, method, url, body=body, headers=headers)
        found: Json = answer.json()
        return answer.status, found


@pytest.fixture
async def token(real_cloud: RealCloud, namespace: str) -> str:
    events = (rule(group, "events", "create patch") for group in ("", "events.k8s.io"))
    may = [rule("", "services configmaps", "get list watch"), *events]
    made = rights(f"proxy-{namespace}", may, account(namespace, ACCOUNT))
    await asyncio.to_thread(real_cloud.apply, made)
    services = f"/api/v1/namespaces/{namespace}/services"
    await asyncio.to_thread(real_cloud.admin.post, services, headless("web", 2000))
    return await asyncio.to_thread(real_cloud.token, namespace, ACCOUNT)


def event(note: str, namespace: str) -> dict[str, Json]:
    """Return an event in both of its APIs; kube-proxy writes the second one."""
    about = {"kind": "Pod", "namespace": namespace, "name": "web"}
    now = "2026-11-27T12:00:00.000000Z"
    return {
        CORE_EVENTS: {
            "metadata": {"generateName": "core-"},
            "involvedObject": about,
            "reason": "Starting",
            "message": note,
            "type": "Normal",
        },
        EVENTS: {
            "metadata": {"generateName": "new-"},
            "regarding": about,
            "reason": "Starting",
            "note": note,
            "type": "Normal",
            "eventTime": now,
            "action": "StartKubeProxy",
            "reportingController": "kube-proxy",
            "reportingInstance": "n1",
        },
    }


@pytest.mark.parametrize("crash", [False, True], ids=["sigterm", "kill -9"])
async def test_a_callers_review_is_used_after_a_restart_without_the_cloud(
    linked: tuple[Hub, Link], real_cloud: RealCloud, namespace: str, token: str, crash: bool
) -> None:
    def _restart(hub: Hub, *, crash: bool) -> Callable[[], Awaitable[None]]:
        async def restart() -> None:
            await asyncio.to_thread(hub.kill if crash else hub.stop)
            await asyncio.to_thread(hub.start)

        return restart

    def writers_of_events(cloud: RealCloud, namespace: str) -> Counter[str]:
        """Count the events that each user created in the cloud, by the audit log."""
        created = (
            each.user
            for each in cloud.audit()
            if each.stage == "ResponseComplete"
            and each.verb == "create"
            and each.code == 201
            and each.about is not None
            if (each.about.resource, each.about.namespace) == ("events", namespace)
        )
        return Counter(created)

    hub, link = linked
    services = f"/api/v1/namespaces/{namespace}/services"
    missing = f"/api/v1/namespaces/{namespace}/configmaps/missing"
    pod, stranger = Pod(hub, token), Pod(hub, token[:-4] + "AAAA")
    restart = _restart(hub, crash=crash)
    unknown = {401, 503}
    async with started(hub):
        code, before = await pod.get(f"{services}?resourceVersion=0")
        assert (code, [each["metadata"]["name"] for each in before["items"]]) == (200, ["web"])
        assert (await pod.get(missing))[0] == 404
        first = event("before", namespace)
        for events in (CORE_EVENTS, EVENTS):
            assert (await pod.post(events.format(namespace), first[events]))[0] == 201
        assert (await stranger.get(f"{services}?resourceVersion=0"))[0] == 401
        await asyncio.to_thread(hub.wait_until_stored, '"create","events.k8s.io"', 1)
        link.refuse()
        for _ in range(2):
            await restart()
            code, after = await pod.get(f"{services}?resourceVersion=0")
            assert (code, after["items"]) == (200, before["items"]), after
            assert (await stranger.get(f"{services}?resourceVersion=0"))[0] in unknown
            code, reply = await pod.get(missing)
            assert code == 503
            assert "copy" in reply["message"], "a 404 was a yes: it is the object that the node has not"
        waiting = event("while the link is cut", namespace)
        for events in (CORE_EVENTS, EVENTS):
            code, reply = await pod.post(events.format(namespace), waiting[events])
            assert code == 201, reply
        await restart()
        assert (await stranger.post(EVENTS.format(namespace), waiting[EVENTS]))[0] in unknown
        assert token not in "".join(
            file.read_text("latin-1") for file in hub.state.rglob("*") if file.is_file()
        )

        link.carry()
        # The process that accepted the events has ended, and no token is on disk: sent once their caller returns.
        assert (await pod.get(f"{services}?resourceVersion=0"))[0] == 200
        await asyncio.to_thread(hub.wait_for_metric, "edgehub_journal_entries", 0, SLACK)
        assert await asyncio.to_thread(hub.metric, "edgehub_journal_dropped_total", kind="event") == 0
        whose = await asyncio.to_thread(writers_of_events, real_cloud, namespace)
        assert whose == {f"system:serviceaccount:{namespace}:{ACCOUNT}": 4}

        await asyncio.to_thread(
            real_cloud.admin.delete, f"/api/v1/namespaces/{namespace}/serviceaccounts/{ACCOUNT}"
        )
        await restart()  # the former process would have checked again within minutes

        # kube-apiserver caches a token for 10 s.
        async with asyncio.timeout(SLACK):
            while (await pod.get(f"{services}?resourceVersion=0"))[0] != 401:
                await restart()
        link.refuse()
        for _ in range(2):
            assert (await pod.get(f"{services}?resourceVersion=0"))[0] in unknown
            await restart()
        assert (await pod.get(f"{services}?resourceVersion=0"))[0] in unknown
