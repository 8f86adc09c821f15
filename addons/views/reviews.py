"""What the cloud says of a caller's token: whose it is, and whether it may read what the node shares.

Answers are remembered for some minutes, and for as long as the cloud is away.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from addons.requests.caller import Caller, Lending
from addons.requests.cloud_identity import HUB_IDENTITY, CloudIdentity
from addons.requests.object_read import ObjectRead
from kube.errors import StatusError, forbidden, unauthorized, unavailable
from kube.http.client import Client, Unreachable

REMEMBER = 300.0
"""Seconds a yes holds while the cloud is up, as with kube-apiserver's own webhook authorizer."""
REMEMBER_NO = 30.0
"""Seconds a no holds: a right that is given later should not take minutes to be noticed."""
MAX_ANSWERS = 4096
"""Answers kept: a node's pods have some dozens of tokens, rotated hourly."""

USER_PATH = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ACCESS_PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

USER = "whose token"
"""In place of a verb, in the question whose answer is a name."""

ReviewKey = tuple[str, ...]


class Reviews:
    """Asks with the caller's own token, and remembers under the token's digest: no token is kept."""

    def __init__(
        self, client_of_token: Callable[[str], Client], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client_of_token = client_of_token
        self._clock = clock
        self._answers: OrderedDict[ReviewKey, tuple[float, str]] = OrderedDict()

    async def identity(self, caller: Caller) -> CloudIdentity:
        """Whose rights a caller has. StatusError 401 for a caller with neither the hub's nor a valid token's."""
        if caller.lending is Lending.HUB:
            return HUB_IDENTITY
        token = caller.authorization
        if not token:
            raise unauthorized("Unauthorized")
        return CloudIdentity(await self.user(token), token)

    async def user(self, authorization: str) -> str:
        """The user that a token stands for. StatusError 401 when it stands for none."""
        return await self._ask((_digest(authorization), USER), lambda: self._user(authorization))

    async def may_read(self, authorization: str, read: ObjectRead) -> None:
        """Return when the token's user may make this list or watch itself; StatusError 401 or 403 otherwise."""
        type_ = read.type
        scope = (read.verb, type_.group, type_.version, type_.resource, read.namespace, read.name)
        reason = await self._ask((_digest(authorization), *scope), lambda: self._access(authorization, scope))
        if reason:
            raise forbidden(reason)

    async def _ask(self, question: ReviewKey, ask: Callable[[], Any]) -> str:
        known = self._answers.get(question)
        if known is not None and self._clock() < known[0]:
            return known[1]
        try:
            answer: str = await ask()
        except (Unreachable, StatusError) as error:
            if known is not None and (isinstance(error, Unreachable) or error.code >= 500):
                return known[1]
            # The cloud's no ends what was remembered: an outage must not bring it back.
            self._answers.pop(question, None)
            if isinstance(error, Unreachable):
                raise unavailable(f"who asks cannot be verified: {error}") from error
            raise
        holds = REMEMBER_NO if question[1] != USER and answer else REMEMBER
        self._answers[question] = (self._clock() + holds, answer)
        self._answers.move_to_end(question)
        while len(self._answers) > MAX_ANSWERS:
            self._answers.popitem(last=False)
        return answer

    async def _user(self, authorization: str) -> str:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        answer = await self._post(authorization, USER_PATH, review)
        user = answer.get("status", {}).get("userInfo", {})
        return json.dumps([user.get("username", ""), sorted(user.get("groups", []))])

    async def _access(self, authorization: str, scope: tuple[str, ...]) -> str:
        verb, group, version, resource, namespace, name = scope
        attributes = {
            "verb": verb,
            "group": group,
            "version": version,
            "resource": resource,
            "namespace": namespace,
            "name": name,
        }
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        answer = await self._post(authorization, ACCESS_PATH, review)
        if answer.get("status", {}).get("allowed") is True:
            return ""
        where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
        dotted = f"{resource}.{group}" if group else resource
        return f'{dotted} is forbidden: cannot {verb} resource "{resource}" in API group "{group}" {where}'

    async def _post(self, authorization: str, path: str, review: dict[str, Any]) -> dict[str, Any]:
        body = json.dumps(review).encode()
        answer = await self._client_of_token(authorization).request("POST", path, body=body)
        try:
            document = json.loads(answer.body)
        except ValueError:
            raise Unreachable(f"POST {path}: the answer is no JSON") from None
        return document if isinstance(document, dict) else {}


def _digest(authorization: str) -> str:
    return hashlib.sha256(authorization.encode()).hexdigest()
