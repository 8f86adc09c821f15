"""Whom the manager is and whom it trusts."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from controllers.runtime.connection import connect, find_credentials, open_session
from kube.http.client import Unreachable
from kube.http.kubeconfig import Credentials, Piece
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.pki import Authority


def test_a_pod_uses_its_service_account() -> None:
    inside = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    credentials = find_credentials(None, inside)
    assert credentials.server == "https://[fd00::1]:443"
    assert str(credentials.token.path).endswith("serviceaccount/token")
    assert (
        find_credentials(None, {**inside, "KUBERNETES_SERVICE_HOST": "10.0.0.1"}).server
        == "https://10.0.0.1:443"
    )


def test_outside_a_cluster_a_kubeconfig_is_needed() -> None:
    with pytest.raises(ValueError, match="--kubeconfig"):
        find_credentials(None, {})


def test_a_kubeconfig_is_found_as_by_controller_runtime(tmp_path: Path) -> None:
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    home = {"HOME": str(tmp_path)}
    (tmp_path / ".kube").mkdir()
    paths = [tmp_path / "flag", tmp_path / "variable", tmp_path / ".kube" / "config"]
    for path in paths:
        write_kubeconfig(path, f"http://{path.name}", token="t")
    flag, variable, _ = paths
    named = {"KUBECONFIG": str(variable)}
    for given, environment, server in (
        (flag, {**named, **pod, **home}, "http://flag"),
        (None, {**named, **pod, **home}, "http://variable"),
        (None, {**pod, **home}, "https://10.0.0.1:443"),
        (None, home, "http://config"),
    ):
        assert find_credentials(given, environment).server == server


async def server_names(folder: Path, server_name: str, *, insecure: bool = False) -> list[str | None]:
    """What a server with a certificate for cloud.test is asked for; Unreachable when the client does not take it."""
    authority, asked = Authority(), list[str | None]()
    certificate, key = authority.issue_server("cloud", ["cloud.test"]).write(folder, "cloud")
    secure = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    secure.load_cert_chain(certificate, key)
    secure.sni_callback = lambda _object, name, _context: asked.append(name)

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="{}")

    app = web.Application()
    app.router.add_get("/x", answer)
    server = TestServer(app, scheme="https")
    await server.start_server(ssl=secure)
    none, trusted = Piece(), Piece(authority.certificate)
    url = f"https://127.0.0.1:{server.port}"
    credentials = Credentials(url, server_name, insecure, trusted, none, none, none)
    try:
        async with open_session(credentials) as session:
            await connect(session, credentials, "me").request("GET", "/x")
    finally:
        await server.close()
    return asked


async def test_the_server_must_have_the_name_that_the_kubeconfig_says(tmp_path: Path) -> None:
    assert await server_names(tmp_path, "cloud.test") == ["cloud.test"]


@pytest.mark.parametrize("server_name", ["", "other.test"])
async def test_a_server_of_another_name_is_refused(tmp_path: Path, server_name: str) -> None:
    with pytest.raises(Unreachable, match="certificate"):
        await server_names(tmp_path, server_name)


async def test_a_name_is_asked_for_also_where_nothing_is_verified(tmp_path: Path) -> None:
    assert await server_names(tmp_path, "other.test", insecure=True) == ["other.test"]


async def test_the_token_is_read_for_each_request(tmp_path: Path) -> None:
    seen: list[tuple[str, str]] = []

    async def note(request: web.Request) -> web.Response:
        seen.append((request.headers.get("Authorization", ""), request.headers["User-Agent"]))
        return web.Response(text="{}")

    app = web.Application()
    app.router.add_get("/x", note)
    token = tmp_path / "token"
    async with TestServer(app) as server:
        url = f"http://{server.host}:{server.port}"
        credentials = Credentials(url, "", False, Piece(), Piece(), Piece(), Piece(path=token))
        async with open_session(credentials) as session:
            client = connect(session, credentials, "me")
            for text in ("first", "second-longer"):
                token.write_text(text)
                await client.request("GET", "/x")
    assert [each[0] for each in seen] == ["Bearer first", "Bearer second-longer"]
    assert seen[0][1].startswith("edgehub-manager/")
    assert seen[0][1].endswith("(me)")
