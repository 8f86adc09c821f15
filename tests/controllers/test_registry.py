"""The list of controllers."""

from __future__ import annotations

from pathlib import Path

from controllers.registry import CONTROLLERS
from controllers.runtime.controller import Context
from controllers.runtime.informer import Informers
from controllers.runtime.write_client import EventRecorder, WriteClient
from controllers.settings import Settings
from kube.http.client import Client
from tests.cloud.sessions import new_session


async def test_each_controller_watches_a_kind_and_shares_its_copy() -> None:
    async with new_session() as session:
        client = Client(session, "http://127.0.0.1:1", {})
        api = WriteClient(client, lambda: 0.0)
        informers = Informers(client)
        context = Context(api, informers, EventRecorder(api, "test"), Settings(), lambda: "")
        made = [make(context) for make in CONTROLLERS.values()]
    assert [each.name for each in made] == list(CONTROLLERS)
    assert all(each.informers for each in made)
    watched = [each.resource.list_watch for each in informers]
    assert len(watched) == len(set(watched)) == 27


def test_every_controller_is_registered() -> None:
    modules = {make.__module__ for make in CONTROLLERS.values()}
    root = Path(__file__).parents[2]
    found = {
        ".".join(path.relative_to(root).with_suffix("").parts)
        for path in (root / "controllers").rglob("*.py")
        if "(Controller):" in path.read_text()
    }
    assert found == modules
