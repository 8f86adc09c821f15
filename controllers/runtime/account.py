"""The manager's account, by the kubernetes package: a kubeconfig in all its forms, or a pod's service account.

Only the package's configuration and transport are loaded. Its API and model modules would cost more memory than the
rest of the manager.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config.config_exception import ConfigException
from kubernetes.aio.config.incluster_config import InClusterConfigLoader
from kubernetes.aio.config.kube_config import KubeConfigLoader, KubeConfigMerger

from kube.http.kubeconfig import DataOrFile

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The folder where kubelet mounts the service account of a pod."""
BROKEN = (ConfigException, ValueError, KeyError, TypeError, AttributeError, OSError)
"""The package's exceptions for an unusable kubeconfig."""
HEADER_NAME = "!#$&'*+-.^_`|~"
"""The characters of a header's name that stay, besides letters and digits (RFC 9110, 5.6.2)."""
type Headers = list[tuple[str, str]]


class LoadedAccount:
    """An account as `load` last read it. A subclass defines the source of the configuration."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._configuration = Configuration()
        self._material: tuple[object, ...] = ()
        self._token = DataOrFile()
        self._impersonation: Headers = []

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return str(self._configuration.host).rstrip("/")

    def headers(self) -> Headers:
        """Return the headers of a request. A token in a file is read again for each request."""
        bearer = self._configuration.api_key.get("BearerToken", "")
        if token := self._token.read_token():
            bearer = f"Bearer {token}"
        authorization = [("Authorization", bearer.strip())] if bearer else []
        return [*authorization, *self._impersonation]

    async def load(self) -> None:
        """Read the account; ValueError with a message for the operator if it cannot be used."""
        try:
            self._take(await self._find())
        except BROKEN as error:
            raise ValueError(f"{self._name}: {error}") from error

    async def refresh(self, *, refused: bool) -> bool:
        """Read the account's files again; return whether new connections are needed. Errors as in `load`.

        `refused`: the API server no longer accepts the credentials.
        """
        try:
            return self._take(await self._find_again(refused=refused))
        except BROKEN as error:
            raise ValueError(f"{self._name}: {error}") from error

    def open(self, options: dict[str, Any]) -> aiohttp.ClientSession:
        """Open the package's connections with the account's TLS and proxy settings and these session options."""
        return _Transport(self._configuration, options).open()

    def _take(self, configuration: Configuration) -> bool:
        """Use a configuration from now on; return whether new connections are needed.

        An unusable configuration is ignored, because a rotation may have written the certificate but not yet its key.
        """
        material = _material(configuration)
        changed = material != self._material
        if changed:
            _Transport(configuration, {})
        self._configuration, self._material = configuration, material
        return changed

    async def _find(self) -> Configuration:
        raise NotImplementedError

    async def _find_again(self, *, refused: bool) -> Configuration:
        return await self._find()


class PodAccount(LoadedAccount):
    """The service account of the pod in which the manager runs."""

    def __init__(self, environment: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> None:
        super().__init__("service account")
        self._environment = environment
        self._folder = folder

    async def _find(self) -> Configuration:
        configuration = Configuration()
        token, authority = self._folder / "token", self._folder / "ca.crt"
        InClusterConfigLoader(str(token), str(authority), False, self._environment).load_and_set(
            configuration
        )
        self._token = DataOrFile(path=token)
        return configuration


class KubeconfigAccount(LoadedAccount):
    """The current context of a kubeconfig, or of several merged as by kubectl: `paths` are separated by colons."""

    def __init__(self, paths: str) -> None:
        super().__init__(f"kubeconfig {paths}")
        self._paths = paths
        self._stamps: tuple[object, ...] = ()
        self._plugin = False

    async def _find(self) -> Configuration:
        self._stamps = self._read_stamps()
        merged = KubeConfigMerger(self._paths).config
        if merged is None:
            raise ValueError("there is no such file")
        context = merged["contexts"].get_with_name(merged["current-context"])["context"]
        cluster = merged["clusters"].get_with_name(context["cluster"])["cluster"]
        if not cluster.safe_get("server"):
            raise ValueError(f"cluster {context['cluster']} has no server")
        name = context.safe_get("user")
        user = merged["users"].get_with_name(name)["user"] if name else None
        if user is None and str(cluster["server"]).startswith("https:"):
            raise ValueError(f"context {merged['current-context']} has no user")
        # Relative names are relative to the kubeconfig that has them.
        folder = Path(user.path).parent if user is not None else Path()
        fields: Mapping[str, Any] = user.value if user is not None else {}
        # The file wins over the text, as in client-go: the text may be an old token.
        self._token = (
            DataOrFile(path=folder / str(fields["tokenFile"])) if fields.get("tokenFile") else DataOrFile()
        )
        if not str(fields.get("token") or "").strip().isprintable():
            raise ValueError("token is not a single line")
        self._impersonation = impersonation(fields)
        self._plugin = "exec" in fields
        self._loader = KubeConfigLoader(config_dict=merged, config_base_path=None)
        return await self._configured()

    async def _find_again(self, *, refused: bool) -> Configuration:
        if self._read_stamps() != self._stamps or (refused and self._plugin):
            return await self._find()
        if self._plugin and not hasattr(self._loader, "exec_plugin_expiry"):
            return (
                self._configuration
            )  # credentials without an end serve until they are refused, as in client-go
        return await self._configured()

    async def _configured(self) -> Configuration:
        configuration = Configuration()
        await self._loader.load_and_set(configuration)
        if self._plugin and not (configuration.api_key or configuration.cert_file):
            raise ValueError("the exec plugin gave no credentials; the log says why")
        return configuration

    def _read_stamps(self) -> tuple[object, ...]:
        stamps: list[object] = []
        for path in self._paths.split(os.pathsep):
            try:
                status = Path(path).expanduser().stat()
                stamps.append((status.st_mtime_ns, status.st_ino))
            except OSError:
                stamps.append(None)
        return tuple(stamps)


class _Transport(RESTClientObject):  # type: ignore[misc]  # the package has no annotations that mypy reads
    """The package's REST client, whose connection pool the manager uses."""

    def __init__(self, configuration: Configuration, options: dict[str, Any]) -> None:
        configuration.connection_pool_maxsize = 0
        # Python 3.13 demands extensions that many clusters' CA certificates lack.
        configuration.disable_strict_ssl_verification = True
        server_name = configuration.tls_server_name

        async def named(
            request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
        ) -> aiohttp.ClientResponse:
            """Verify the server's certificate for another name than the URL's host."""
            request.server_hostname = server_name or None
            return await send(request)

        configuration.client_session_kwargs = {
            **options,
            "middlewares": [named],
            "proxy": configuration.proxy,
        }
        super().__init__(configuration)

    def open(self) -> aiohttp.ClientSession:
        session: aiohttp.ClientSession = self._create_pool_manager()
        return session


def impersonation(user: Mapping[str, Any]) -> Headers:
    """Return the impersonation headers of a kubeconfig's user; the package ignores these fields."""
    headers = [("Impersonate-User", str(user["as"]))] if user.get("as") else []
    headers += [("Impersonate-Uid", str(user["as-uid"]))] if user.get("as-uid") else []
    headers += [("Impersonate-Group", str(group)) for group in user.get("as-groups") or ()]
    for key, values in (user.get("as-user-extra") or {}).items():
        # Encoded as by client-go: a key may be the name of a field, with a slash.
        headers += [(f"Impersonate-Extra-{quote(key, safe=HEADER_NAME)}", str(value)) for value in values]
    if headers and not user.get("as"):
        raise ValueError("a user with as-uid, as-groups or as-user-extra needs as")
    if not all(value.isprintable() for _, value in headers):
        raise ValueError("as, or another field of the impersonated user, is not a single line")
    return headers


def _material(configuration: Configuration) -> tuple[object, ...]:
    """Return every value that connections depend on. Files count by content, because certificates rotate."""
    paths = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
    return (
        *(Path(path).read_bytes() if path else b"" for path in paths),
        configuration.host,
        configuration.verify_ssl,
        configuration.tls_server_name,
        configuration.proxy,
    )
