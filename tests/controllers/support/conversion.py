"""A conversion webhook of NodePools like that of OpenYurt 1.7, whose v1beta2 has fields that older versions lack."""

from __future__ import annotations

import base64
import ssl
from collections import Counter
from pathlib import Path

import orjson

from kube.json_type import Json
from tests.cloud.pki import Authority
from tests.cloud.ports import LOOPBACK
from tests.support.server_thread import Answering, HttpServer

NEW_FIELDS = {"enableLeaderElection": False, "leaderElectionStrategy": "random", "leaderReplicas": 1}
"""Fields of v1beta2 with the values that objects of older versions get."""
REVIEW = "apiextensions.k8s.io/v1"


class ConversionWebhook(HttpServer):
    """Converts on a port of its own; a context manager."""

    def __init__(self, folder: Path) -> None:
        authority = Authority()
        self.converted: Counter[str] = Counter()
        """Objects by the version that they were converted to."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*authority.issue_server("conversion", [LOOPBACK]).write(folder, "conversion"))
        webhook = self

        class Handler(Answering):
            def respond(self) -> None:
                self.answer(orjson.dumps(webhook.review(orjson.loads(self.body())["request"])))

        super().__init__(Handler, context)
        self.client_config = {
            "url": f"{self.url}/convert",
            "caBundle": base64.b64encode(authority.certificate).decode(),
        }

    def review(self, request: Json) -> Json:
        """The ConversionReview that answers a request."""
        wanted = request["desiredAPIVersion"]
        self.converted[wanted.rpartition("/")[2]] += len(request["objects"])
        converted = [convert(each, wanted) for each in request["objects"]]
        response = {"uid": request["uid"], "convertedObjects": converted, "result": {"status": "Success"}}
        return {"apiVersion": REVIEW, "kind": "ConversionReview", "response": response}


def convert(obj: Json, api_version: str) -> Json:
    """A NodePool in another version: the newest one gets its own fields, the others lose them."""
    spec = dict(obj.get("spec") or {})
    if api_version.endswith("/v1beta2"):
        spec = {**NEW_FIELDS, **spec}
    else:
        spec = {name: value for name, value in spec.items() if name not in NEW_FIELDS}
    return {**obj, "apiVersion": api_version, "spec": spec}
