"""A cluster that signs certificate requests at once unless told to deny them, for any caller."""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from functools import partial
from typing import Any

from kube.errors import StatusError
from kube.http.client import Unreachable
from tests.addons.support.scripted_client import Asked, ScriptedClient
from tests.cloud.pki import Authority

AUTHORITY = Authority()


class SigningCluster:
    """A cluster that signs certificates. Callers are the hub (`hub`) and users, by token, as in
    `addons.requests.clients.Clients`."""

    def __init__(self) -> None:
        self.address = "10.0.0.1"
        """The address of node n1."""
        self.is_there = True
        self.events: list[str] = []
        self.life = timedelta(hours=1)
        """The lifetime of the issued certificates."""
        self.denial = ""
        """The reason why it denies each request; "" to sign."""
        self.refusal: dict[str, int] = {}
        """The status code for each refused caller."""
        self.callers: list[str] = []
        """The user of each certificate request."""
        self._pem = b""
        self.hub = self.of_token("hub")

    def of_token(self, authorization: str) -> ScriptedClient:
        return ScriptedClient(partial(self._answer, authorization))

    def _answer(self, caller: str, asked: Asked) -> dict[str, Any]:
        if not self.is_there:
            raise Unreachable("the cloud is away")
        if asked.path == "/api/v1/nodes/n1":
            return {"status": {"addresses": [{"type": "InternalIP", "address": self.address}]}}
        if asked.path.endswith("/events"):
            self.events.append(json.loads(asked.body)["message"])
            return {}
        if asked.method == "POST":
            self.callers.append(caller)
            if caller in self.refusal:
                raise StatusError(self.refusal[caller], "Refused", f"no, says the cloud to {caller}")
            self._pem = base64.b64decode(json.loads(asked.body)["spec"]["request"])
            return {"metadata": {"name": "one"}}
        if self.denial:
            return {"status": {"conditions": [{"type": "Denied", "message": self.denial}]}}
        made = AUTHORITY.sign_request(self._pem, self.life)
        return {"status": {"certificate": base64.b64encode(made).decode()}}
