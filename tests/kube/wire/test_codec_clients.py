"""Kubernetes' own code reads the codecs' output: kubectl's typed and untyped clients, and kube-apiserver."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from kube.errors import expired
from kube.json_type import Json
from kube.wire.api_objects import decode_object
from kube.wire.codec import codec_for
from kube.wire.codec_base import ListMeta
from kube.wire.encoding import Encoding
from tests.cloud.real import RealCloud
from tests.cloud.scriptable.presentation import encode_status
from tests.kube.support.recorded import single
from tests.support.server_thread import Answering, HttpServer

EVENT = ("v1", "Event")
EVENTS = "/api/v1/namespaces/fixtures/events"
DISCOVERY = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [
            {"name": "events", "namespaced": True, "kind": "Event", "verbs": ["get", "list", "watch"]}
        ],
    },
}


class CachedResponses(Answering):
    """A list of one event; a watch with a bookmark, two more events and an error."""

    encoding: Encoding
    asked: list[tuple[str, str]]

    def respond(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        codec = codec_for(self.encoding)
        if url.path in DISCOVERY:
            self.answer(json.dumps(DISCOVERY[url.path]).encode())
        elif url.path != EVENTS:
            self.answer(encode_status(expired(url.path), self.encoding), 410, codec.content_type)
        elif query.get("watch") in ("1", "true"):
            self.asked.append(("watch", self.headers["Accept"]))
            self.answer(self._stream(), content_type=codec.watch_content_type)
        else:
            self.asked.append(("list", self.headers["Accept"]))
            page = codec.encode_list(*EVENT, ListMeta(7), [self._event("listed", 7)])
            self.answer(bytes(page), content_type=codec.content_type)

    def _event(self, message: str, version: int) -> bytes:
        """Return the recorded event, rewritten by the product's codec."""
        event = decode_object(self.encoding, *single("events.single", self.encoding))
        event.fields.set("message", message)
        event.fields.child("metadata").set("name", message)
        return codec_for(self.encoding).with_version(event.encode(), version)

    def _stream(self) -> bytes:
        codec = codec_for(self.encoding)
        return b"".join(
            (
                codec.encode_event("ADDED", *EVENT, self._event("watched", 8)),
                codec.encode_bookmark(*EVENT, 9),
                codec.encode_event("MODIFIED", *EVENT, self._event("modified", 10)),
                codec.encode_error(expired("the end of this watch")),
            )
        )


@contextmanager
def serving(encoding: Encoding) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield a server's URL, and the received requests with their Accept header."""
    questions: list[tuple[str, str]] = []

    class Handler(CachedResponses):
        """Send the responses of this server."""

    Handler.encoding, Handler.asked = encoding, questions
    with HttpServer(Handler) as server:
        yield server.url, questions


type Kubectl = Callable[..., str]


@pytest.fixture
def kubectl(cloud_programs: dict[str, Path], tmp_path: Path) -> Kubectl:
    """Run kubectl without a user's configuration; return its output if it succeeds."""

    def run(*args: str) -> str:
        command = [str(cloud_programs["kubectl"]), "--namespace=fixtures", *args]
        environ = {"HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "none")}
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return run


def test_a_typed_client_reads_protobuf(kubectl: Kubectl) -> None:
    with serving(Encoding.PROTOBUF) as (url, asked):
        listed = kubectl(f"--server={url}", "events")
        watched = kubectl(f"--server={url}", "events", "--watch")
    # The Accept header of client-go's generated clients.
    typed = "application/vnd.kubernetes.protobuf,application/json"
    assert asked == [("list", typed), ("watch", typed)]
    assert [line.split()[-1] for line in listed.splitlines()] == ["MESSAGE", "listed"]
    # This command also prints a bookmark, as an Event without data.
    assert [line.split()[-1] for line in watched.splitlines()] == ["MESSAGE", "watched", "/", "modified"]


def test_an_untyped_client_reads_json(kubectl: Kubectl) -> None:
    with serving(Encoding.JSON) as (url, asked):
        listed = json.loads(kubectl(f"--server={url}", "get", "events", "-o", "json"))
        watched = kubectl(f"--server={url}", "get", "events", "--watch", "-o", "name")
    assert asked == [("list", "application/json")] * 2 + [("watch", "application/json")]
    recorded = json.loads(single("events.single", Encoding.JSON)[2])
    recorded["message"] = recorded["metadata"]["name"] = "listed"
    recorded["metadata"]["resourceVersion"] = "7"
    del recorded["metadata"]["managedFields"]  # kubectl hides managedFields
    assert listed["items"] == [recorded]
    # The watch starts with the list; a bookmark is an Event without a name, and the error is a Status.
    assert watched.split() == [
        "event/listed",
        "event/watched",
        "event/<unknown>",
        "event/modified",
        "status/<unknown>",
    ]


@pytest.mark.parametrize("name", ["services.single", "endpointslices.single", "configmaps.single"])
def test_a_server_accepts_objects_written_by_the_codec(
    name: str, real_cloud: RealCloud, namespace: str
) -> None:
    def bare() -> Json:
        """Return the recorded object as a client would create it."""
        obj: Json = json.loads(single(name, Encoding.JSON)[2])
        obj["metadata"] = {"name": obj["metadata"]["name"], "labels": obj["metadata"]["labels"]}
        for given in ("clusterIP", "clusterIPs", "healthCheckNodePort"):
            obj.get("spec", {}).pop(given, None)
        for port in obj.get("spec", {}).get("ports", []):
            port.pop("nodePort", None)
        return obj

    def _collection(recorded: tuple[str, str, bytes]) -> str:
        api_version, kind, _ = recorded
        root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        return f"{root}/namespaces/{namespace}/{kind.lower()}s"

    collection = _collection(single(name, Encoding.JSON))
    made = real_cloud.admin.post(collection, bare())
    path = f"{collection}/rich"
    codec = codec_for(Encoding.PROTOBUF)
    accept = {"Accept": codec.content_type}
    answer = real_cloud.admin.request("GET", path, headers=accept)
    written = decode_object(Encoding.PROTOBUF, *codec.decode_single(answer.body))
    written.fields.child("metadata").set_mapping("annotations", {"written": "by Fields"})
    body = codec.encode_single(written.api_version, written.kind, written.encode())
    put = real_cloud.admin.request("PUT", path, body=body, headers={"Content-Type": codec.content_type})
    assert put.status == 200
    changed = put.json()
    assert changed["metadata"].pop("annotations") == {"written": "by Fields"}
    for each in (made, changed):
        del each["metadata"]["resourceVersion"], each["metadata"]["managedFields"]
    assert changed == made
