"""A hub configured with another node's name answers requests, but reports that it is not ready, as no filter knows its
pool."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import aiohttp

from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.pki import Authority
from tests.cloud.scriptable import ScriptableCloud
from tests.hub.support.process import SLACK, Hub, started

NODES = "/api/v1/nodes"


async def test_a_hub_with_the_identity_of_another_node_is_not_ready(
    tmp_path: Path, cloud: ScriptableCloud
) -> None:
    credential = Authority().issue_node("n1")
    kubeconfig = write_kubeconfig(tmp_path / "config", cloud.url, credential=credential)
    cloud.store.create({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "wrongname"}})
    async with started(Hub(tmp_path, cloud.url, node="wrongname", kubeconfig=kubeconfig)) as hub:
        async with aiohttp.ClientSession() as session:
            code, why = await readiness(session, hub)
            assert code == 503
            assert why == (
                "the identity is node n1's, and --node is wrongname: give --node n1, or --kubeconfig that of wrongname"
            )
            async with session.get(f"{hub.url}{NODES}/wrongname") as answer:
                assert answer.status == 200, "it answers all the same"
        hub.process.wait_for_line("the identity is node n1's", SLACK)


async def test_names_of_nodes_are_case_sensitive(tmp_path: Path, cloud: ScriptableCloud) -> None:
    """The cloud has no Node N1, and never will: as its Node authorizer, the hub takes it for nobody's."""
    authority = Authority()
    upper, lower = (authority.issue_node(name) for name in ("N1", "n1"))
    kubeconfig = write_kubeconfig(
        tmp_path / "config", cloud.url, credential=upper, authority=authority.certificate
    )
    cloud.store.create({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n1"}})
    async with (
        started(Hub(tmp_path, cloud.url, node="n1", kubeconfig=kubeconfig)) as hub,
        aiohttp.ClientSession() as session,
    ):
        code, why = await readiness(session, hub)
        assert (code, why.partition(",")[0]) == (503, "the identity is system:node:N1")
        for credential, expected in ((upper, 401), (lower, 200)):
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.load_cert_chain(*credential.write(tmp_path, "client"))
            async with session.get(f"{hub.tls_url}{NODES}/n1", ssl=context) as answer:
                assert answer.status == expected


async def test_a_node_can_register_through_its_hub(tmp_path: Path, cloud: ScriptableCloud) -> None:
    async def until(session: aiohttp.ClientSession, hub: Hub, code: int) -> None:
        """Poll until the hub gives this response; it sends no notification."""
        for _ in range(3000):
            if (await readiness(session, hub))[0] == code:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(await readiness(session, hub))

    async with (
        started(Hub(tmp_path, cloud.url, node="new")) as hub,
        aiohttp.ClientSession(headers={"User-Agent": "kubelet/v1"}) as session,
        asyncio.timeout(2 * SLACK),
    ):
        code, why = await readiness(session, hub)
        assert (code, why.partition(":")[0]) == (503, "the cloud has no Node new")
        async with session.post(hub.url + NODES, json={"metadata": {"name": "new"}}) as answer:
            assert answer.status == 201
        await until(session, hub, 200)
        cloud.store.delete("nodes", "new")
        await until(session, hub, 503)


async def readiness(session: aiohttp.ClientSession, hub: Hub) -> tuple[int, str]:
    async with session.get(f"{hub.admin_url}/readyz") as answer:
        return answer.status, (await answer.text()).strip()
