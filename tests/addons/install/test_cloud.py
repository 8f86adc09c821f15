"""Requests to the cloud carry the kubeconfig's credentials."""

from __future__ import annotations

import dataclasses

import pytest

from addons.install.cloud import cloud, get, local, may
from kube.errors import StatusError
from kube.http.client import Unreachable
from kube.http.kubeconfig import Piece
from tests.addons.support.small_api import anonymous, small_api


async def test_objects_and_rights_are_asked_for() -> None:
    async with small_api({"/api/v1/nodes/n1": {"kind": "Node"}}, refused=frozenset({"pods"})) as url:
        credentials = dataclasses.replace(anonymous(url), token=Piece(b"secret"))
        async with cloud(credentials) as client:
            assert await get(client, "/api/v1/nodes/n1") == {"kind": "Node"}
            assert await may(client, {"resource": "services", "verb": "list"})
            assert not await may(client, {"resource": "pods", "verb": "list"})
            with pytest.raises(StatusError, match="not found"):
                await get(client, "/nowhere")


async def test_a_port_where_nobody_listens_is_unreachable() -> None:
    async with local("http://127.0.0.1:1") as client:
        with pytest.raises(Unreachable):
            await get(client, "/")
