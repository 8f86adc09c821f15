"""`edgehub pods`: the pods with pending updates, and an update on request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from addons.ui.commands.shell import run
from kube.json_type import Json
from tests.support.server_thread import Answering, HttpServer


def pod(name: str, need: str | None, *image: str, namespace: str = "shop") -> Json:
    conditions: list[Json] = []
    if need is not None:
        conditions.append({"type": "PodNeedUpgrade", "status": need, "message": "controllerrevision: h2"})
    if image:
        found = dict(zip(("status", "reason", "message"), image, strict=True))
        conditions.append({"type": "PodImageReady", **found})
    return {
        "metadata": {"namespace": namespace, "name": name, "ownerReferences": [{"name": "web"}]},
        "status": {"conditions": conditions},
    }


class Node:
    """An admin port that serves these pods."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.pods: list[Json] = []
        self.posted: list[str] = []
        self.answer: tuple[str, int] = ("Start updating pod shop/web-1", 200)


@pytest.fixture
def node() -> Iterator[Node]:
    class Handler(Answering):
        def respond(self) -> None:
            if self.command == "POST":
                made.posted.append(self.path)
                text, code = made.answer
                self.answer(text.encode(), code, "text/plain; charset=utf-8")
            else:
                assert self.path == "/pods"
                self.answer(json.dumps({"items": made.pods}).encode())

    with HttpServer(Handler) as server:
        made = Node(server.url)
        yield made


def run_pods(node: Node, *arguments: str) -> int:
    return run(["pods", *arguments, "--admin", node.url])


def test_pods_with_pending_updates_are_listed_with_the_state_of_their_images(
    node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = "controllerrevision: h2"
    node.pods = [
        pod("plain", None),
        pod("new", "False"),
        pod("old", "True"),
        pod("pulling", "True", "False", "", wanted),
        pod("pulled", "True", "True", "PullImageSuccess", wanted),
        pod("failed", "True", "False", "PullImageFail", "pull image job j failed"),
        pod("former", "True", "True", "", "controllerrevision: h1"),
    ]
    assert run_pods(node) == 0
    assert [line.split(maxsplit=3) for line in capsys.readouterr().out.splitlines()] == [
        ["NAMESPACE", "NAME", "DAEMONSET", "IMAGES"],
        ["shop", "old", "web", "not asked for"],
        ["shop", "pulling", "web", "being pulled"],
        ["shop", "pulled", "web", "pulled"],
        ["shop", "failed", "web", "PullImageFail"],
        ["shop", "former", "web", "of another template"],
    ]
    assert run_pods(node, "--json") == 0
    found: list[Any] = json.loads(capsys.readouterr().out)
    assert len(found) == 5


def test_no_pending_update_is_reported(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_pods(node) == 0
    assert capsys.readouterr().out == "no pod of this node waits for an update\n"


@pytest.mark.parametrize("action", ["upgrade", "imagepull"])
def test_a_pod_is_updated_by_its_name(node: Node, capsys: pytest.CaptureFixture[str], action: str) -> None:
    node.pods = [pod("web-1", "True"), pod("web-2", "True", namespace="other")]
    assert run_pods(node, action, "web-1") == 0
    assert node.posted == [f"/openyurt.io/v1/namespaces/shop/pods/web-1/{action}"]
    assert capsys.readouterr().out == "Start updating pod shop/web-1\n"


def test_an_unknown_or_ambiguous_pod_name_is_refused(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node.pods = [pod("web-1", "True"), pod("web-1", "True", namespace="other")]
    assert run_pods(node, "upgrade", "web-1") == 1
    assert "waits for an update in other, shop: name one by --namespace" in capsys.readouterr().err
    assert run_pods(node, "upgrade", "web-3") == 1
    assert "waits for an update nowhere" in capsys.readouterr().err
    assert node.posted == []
    assert run_pods(node, "upgrade", "web-1", "--namespace", "other") == 0
    assert node.posted == ["/openyurt.io/v1/namespaces/other/pods/web-1/upgrade"]


def test_a_refusal_of_the_hub_is_printed(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node.answer = ("OTA upgrade is not allowed when node is disconnected to cloud", 503)
    assert run_pods(node, "upgrade", "web-1", "--namespace", "shop") == 1
    assert capsys.readouterr().err == (
        f"the hub at {node.url} refuses: OTA upgrade is not allowed when node is disconnected to cloud\n"
    )


def test_an_action_without_a_pod_is_refused(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run_pods(node, "upgrade")
    assert "upgrade needs the NAME of a pod" in capsys.readouterr().err
