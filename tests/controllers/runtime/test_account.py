"""The manager's user, from every form of kubeconfig and in a pod, in the manager's process."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from kube.json_type import Json
from tests.cloud.pki import Authority
from tests.cloud.ports import LOOPBACK
from tests.controllers.support.process import PROGRAM, interpreter
from tests.support.polling import eventually
from tests.support.server_thread import Answering, HttpServer

PATIENCE = 60.0
"""Seconds until a change of the account takes effect: each request triggers a check in the background."""

PLUGIN = """
import json, pathlib, sys
count = pathlib.Path(sys.argv[1])
number = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(number))
status = {"token": f"from-plugin-{number}"}
if len(sys.argv) > 2:
    status["expirationTimestamp"] = sys.argv[2]
print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}))
"""


class Server(HttpServer):
    """Respond with the received path, headers, and subject of the client certificate. Refuses the tokens in `refused`,
    and is also an OpenID issuer and a proxy."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.refused: set[str] = set()
        self.proxied: list[str] = []
        server = self

        class Handler(Answering):
            def respond(self) -> None:
                peer = self.connection.getpeercert() if isinstance(self.connection, ssl.SSLSocket) else None
                subject = dict(cast(Any, peer)["subject"][0]) if peer else {}
                headers = [(key.lower(), value) for key, value in self.headers.items()]
                if not self.path.startswith("/"):  # also for CONNECT
                    server.proxied.append(self.path)
                if self.command == "CONNECT":
                    self.tell({}, 502)
                elif self.command == "POST":
                    self.body()
                    self.tell({"id_token": "new.id.token", "refresh_token": "r"})
                elif self.path.endswith("openid-configuration"):
                    self.tell({"token_endpoint": f"{server.url}/token"})
                elif dict(headers).get("authorization", "") in server.refused:
                    self.tell({}, 401)
                else:
                    self.tell({"headers": headers, "subject": subject.get("commonName", "")})

            def tell(self, document: Json, code: int = 200) -> None:
                self.answer(json.dumps(document).encode(), code)

        super().__init__(Handler, context)


class AccountProcess:
    """A process that sends requests like the manager."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        removed = (
            "KUBECONFIG",
            "HTTPS_PROXY",
            "HTTP_PROXY",
            "https_proxy",
            "http_proxy",
            "no_proxy",
            "NO_PROXY",
        )
        retained = {key: value for key, value in os.environ.items() if key not in removed}
        self._process = subprocess.Popen(
            [interpreter(), "-m", "tests.controllers.support.ask"],
            cwd=PROGRAM.parents[1],
            env={**retained, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, kubeconfig: Path | None = None, get: str = "/api", pod: Path | None = None) -> Json:
        question = {"kubeconfig": kubeconfig and str(kubeconfig), "get": get, "pod": pod and str(pod)}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer: Json = json.loads(self._process.stdout.readline())
        return answer

    def sees(self, kubeconfig: Path | None, expected: str, pod: Path | None = None) -> None:
        """Repeat requests until the server has received this Authorization header."""

        def sees() -> bool:
            answer = self(kubeconfig, pod=pod)
            return answer.get("status") == 200 and authorization(answer) == expected

        eventually(sees, expected, PATIENCE)

    def close(self) -> None:
        self._process.communicate(timeout=30)


def headers_of(answer: Json) -> list[tuple[str, str]]:
    return [(key, value) for key, value in json.loads(answer["body"])["headers"]]


def authorization(answer: Json) -> str:
    return dict(headers_of(answer)).get("authorization", "")


@pytest.fixture(scope="module")
def ask() -> Iterator[AccountProcess]:
    asking = AccountProcess()
    yield asking
    asking.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    with ExitStack() as stack:
        yield lambda context=None: stack.enter_context(Server(context))


def write(path: Path, user: Json, cluster: Json) -> Path:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ({"token": "t"}, [("authorization", "Bearer t")]),
        ({"username": "u", "password": "p"}, [("authorization", "Basic dTpw")]),
        (
            {
                "token": "t",
                "as": "other",
                "as-uid": "7",
                "as-groups": ["a", "b"],
                "as-user-extra": {"scopes": ["x", "y"], "example.org/Ü": ["z"]},
            },
            [
                ("authorization", "Bearer t"),
                ("impersonate-extra-example.org%2f%c3%9c", "z"),
                ("impersonate-extra-scopes", "x"),
                ("impersonate-extra-scopes", "y"),
                ("impersonate-group", "a"),
                ("impersonate-group", "b"),
                ("impersonate-uid", "7"),
                ("impersonate-user", "other"),
            ],
        ),
    ],
    ids=["token", "password", "as"],
)
def test_the_user_is_read_from_the_kubeconfig(
    ask: AccountProcess,
    serve: Callable[..., Server],
    tmp_path: Path,
    user: Json,
    expected: list[tuple[str, str]],
) -> None:
    answer = ask(write(tmp_path / "config", user, {"server": serve().url}))
    sent = headers_of(answer)
    assert sorted(each for each in sent if each[0].startswith(("authorization", "impersonate"))) == expected
    assert dict(sent)["user-agent"].startswith("edgehub-manager/")


@pytest.mark.parametrize(
    ("user", "cluster", "message"),
    [
        ({"token": "t"}, {}, "has no server"),
        ({"as-groups": ["a"]}, {"server": "http://x"}, "needs as"),
        ({"as": "a\nb"}, {"server": "http://x"}, "not a single line"),
        ({"token": "a\nb"}, {"server": "http://x"}, "token is not a single line"),
        ({"tokenFile": "none"}, {"server": "http://x"}, "none"),
        ({"exec": {"command": "/none", "apiVersion": "v1"}}, {"server": "http://x"}, "no credentials"),
        ({"client-certificate": "none"}, {"server": "https://x"}, "none"),
    ],
    ids=["no server", "groups alone", "lines", "lines of a token", "no token", "no plugin", "no certificate"],
)
def test_an_unusable_kubeconfig_is_an_error_with_its_reason(
    ask: AccountProcess, tmp_path: Path, user: Json, cluster: Json, message: str
) -> None:
    assert message in ask(write(tmp_path / "config", user, cluster))["error"]


def test_a_token_file_is_read_again_without_its_newline(
    ask: AccountProcess, serve: Callable[..., Server], tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    config = write(tmp_path / "config", {"tokenFile": "token", "token": "old"}, {"server": serve().url})
    assert authorization(ask(config)) == "Bearer first"
    token.write_text("second-longer\nand-another\n")
    assert authorization(ask(config)) == "Bearer second-longer"


def test_a_changed_kubeconfig_is_read_again(
    ask: AccountProcess, serve: Callable[..., Server], tmp_path: Path
) -> None:
    first, second = serve(), serve()
    config = write(tmp_path / "config", {"token": "a"}, {"server": first.url})
    assert authorization(ask(config)) == "Bearer a"
    write(tmp_path / "new", {"token": "b"}, {"server": second.url}).replace(config)
    ask.sees(config, "Bearer b")


def test_a_plugin_runs_when_its_token_expires_and_when_it_is_refused(
    ask: AccountProcess, serve: Callable[..., Server], tmp_path: Path
) -> None:
    plugin = tmp_path / "plugin.py"
    plugin.write_text(PLUGIN)
    server = serve()

    def config(name: str, *more: str) -> Path:
        given = {"command": sys.executable, "args": [str(plugin), str(tmp_path / f"{name}.count"), *more]}
        user = {"exec": {**given, "apiVersion": "client.authentication.k8s.io/v1"}}
        return write(tmp_path / name, user, {"server": server.url})

    expiring = config("expiring", "2020-01-01T00:00:00Z")
    assert authorization(ask(expiring)) == "Bearer from-plugin-1"
    ask.sees(expiring, "Bearer from-plugin-2")
    lasting = config("lasting")
    for _ in range(5):
        assert authorization(ask(lasting)) == "Bearer from-plugin-1"
    server.refused.add("Bearer from-plugin-1")
    ask.sees(lasting, "Bearer from-plugin-2")


def test_an_openid_token_is_refreshed(
    ask: AccountProcess, serve: Callable[..., Server], tmp_path: Path
) -> None:
    server = serve()
    issuer = {"client-id": "i", "client-secret": "s", "idp-issuer-url": server.url, "refresh-token": "r"}
    user = {"auth-provider": {"name": "oidc", "config": issuer}}
    assert (
        authorization(ask(write(tmp_path / "config", user, {"server": server.url}))) == "Bearer new.id.token"
    )


def test_the_clusters_proxy_url_is_used(
    ask: AccountProcess, serve: Callable[..., Server], tmp_path: Path
) -> None:
    server, proxy = serve(), serve()
    cluster = {"server": server.url, "proxy-url": proxy.url}
    assert ask(write(tmp_path / "config", {"token": "t"}, cluster))["status"] == 200
    assert proxy.proxied == [f"{server.url}/api"]


def test_environment_variables_name_kubeconfigs_and_a_proxy(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    """The first file has no user; the second has it, with a token file beside it."""
    proxy = serve()
    there = tmp_path / "there"
    there.mkdir()
    (there / "token").write_text("t")
    first = write(tmp_path / "first", {}, {"server": serve().url})
    first.write_text(first.read_text().replace("name: u\n", "name: nobody\n"))
    second = write(there / "second", {"tokenFile": "token"}, {"server": "https://never"})
    asking = AccountProcess({"KUBECONFIG": f"{first}:{second}", "HTTPS_PROXY": proxy.url})
    try:
        assert authorization(asking()) == "Bearer t"
        secure = write(tmp_path / "secure", {"token": "t"}, {"server": "https://cloud.test"})
        assert "error" in asking(secure)
    finally:
        asking.close()
    assert proxy.proxied == ["cloud.test:443"]


def test_rotated_certificates_and_the_tls_server_name_of_the_kubeconfig_are_used(
    ask: AccountProcess, serve: Callable[..., Server], tmp_path: Path
) -> None:
    authority = Authority()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=authority.certificate.decode())
    context.load_cert_chain(*authority.issue_server("cloud", ["cloud.test"]).write(tmp_path, "server"))
    context.verify_mode = ssl.CERT_REQUIRED
    server = serve(context)
    (tmp_path / "ca").write_bytes(authority.certificate)
    certificate, key = authority.issue_client("first").write(tmp_path, "client")
    user = {"client-certificate": certificate.name, "client-key": key.name}
    cluster: Json = {"server": server.url, "certificate-authority": "ca"}
    assert "certificate" in ask(write(tmp_path / "unnamed", user, cluster))["error"]
    config = write(tmp_path / "config", user, {**cluster, "tls-server-name": "cloud.test"})
    assert subject(ask(config)) == "first"
    second = authority.issue_client("second")
    certificate.write_bytes(second.certificate)  # half written: its key follows later
    assert [subject(ask(config)) for _ in range(5)] == ["first"] * 5
    second.write(tmp_path, "client")
    eventually(lambda: subject(ask(config)) == "second", "the second certificate is shown", PATIENCE)


def subject(answer: Json) -> str:
    return str(json.loads(answer["body"])["subject"]) if answer.get("status") == 200 else ""


def test_a_pod_uses_its_service_account(serve: Callable[..., Server], tmp_path: Path) -> None:
    authority = Authority()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.issue_server("cloud", [LOOPBACK]).write(tmp_path, "server"))
    server = serve(context)
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    (tmp_path / "token").write_text("projected\n")
    port = str(server.port)
    asking = AccountProcess({"KUBERNETES_SERVICE_HOST": LOOPBACK, "KUBERNETES_SERVICE_PORT": port})
    try:
        asking.sees(None, "Bearer projected", pod=tmp_path)
        (tmp_path / "token").write_text("rotated-projected\n")
        asking.sees(None, "Bearer rotated-projected", pod=tmp_path)
    finally:
        asking.close()


def test_only_configuration_and_transport_of_the_kubernetes_package_are_loaded(
    ask: AccountProcess, serve: Callable[..., Server], tmp_path: Path
) -> None:
    ask(write(tmp_path / "config", {"token": "t"}, {"server": serve().url}))
    loaded: list[Any] = ask(get="modules")["body"]
    assert "kubernetes.aio.client.rest" in loaded
    heavy = [
        name for name in loaded if name.startswith("kubernetes") and (".api." in name or ".models." in name)
    ]
    assert heavy == []
    assert not {"mitmproxy", "h2"} & set(loaded)
