"""Sends requests to API servers like the manager; runs in the manager's environment, which has the package kubernetes.
Each line of standard input is a JSON object: `kubeconfig` (a path, null for the account of the process), `pod` (the
folder of a service account) and `get` (a path). Each line of standard output is its response: `status` and `body`, or
`error`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from controllers.runtime import connection
from controllers.runtime.account import PodAccount
from kube.errors import StatusError
from kube.http.client import Client, Unreachable

connection.REFRESH_INTERVAL = connection.REFUSED_INTERVAL = 0.0  # for each request


class Asker:
    """Store the session of each account."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._clients: dict[str, Client] = {}

    async def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        if question["get"] == "modules":
            return {"body": sorted(sys.modules)}
        try:
            client = await self._client(question)
            answer = await client.request("GET", question["get"], timeout=20)
        except StatusError as error:
            return {"status": error.code}
        except (Unreachable, ValueError) as error:
            return {"error": str(error)}
        return {"status": 200, "body": answer.body.decode()}

    async def _client(self, question: dict[str, Any]) -> Client:
        name = str(question.get("kubeconfig") or question.get("pod") or "")
        if name not in self._clients:
            account: connection.Account
            if question.get("pod"):
                account = PodAccount(os.environ, Path(question["pod"]))
            else:
                account = connection.find_account(Path(name) if name else None)
            await account.load()
            session = await self._stack.enter_async_context(connection.AccountSession(account))
            self._clients[name] = connection.connect(session, "ask")
        return self._clients[name]


async def main() -> None:
    async with AsyncExitStack() as stack:
        asker = Asker(stack)
        while line := await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(await asker.answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
