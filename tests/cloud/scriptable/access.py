"""Authentication and authorization of callers, by tables that a test fills."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kube.errors import StatusError, unauthorized
from kube.json_type import Json
from kube.requests.request_info import RequestInfo

AUTHENTICATED = "system:authenticated"


@dataclass(frozen=True, slots=True)
class User:
    """An identity, as SelfSubjectReview shows it."""

    name: str
    groups: tuple[str, ...] = ()


ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))

type Allow = Callable[[RequestInfo], bool]


class Access:
    """The tables: `tokens` and `certificates` (by common name) authenticate a caller, `allowed` (by user name)
    authorizes it. A user missing from `allowed` is permitted everything. A token or certificate in no table is refused;
    a caller with neither is anonymous, unless `anonymous` is False."""

    def __init__(self) -> None:
        self.tokens: dict[str, User] = {}
        self.certificates: dict[str, User] = {}
        self.allowed: dict[str, Allow] = {}
        self.anonymous = True

    def authenticate(self, headers: Mapping[str, str], common_name: str) -> User:
        """Return the caller; StatusError 401 for an unknown one. A token takes precedence over a certificate, as in a
        real server."""
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            user = self.tokens.get(token.strip())
        elif common_name:
            user = self.certificates.get(common_name)
        else:
            user = ANONYMOUS if self.anonymous else None
        if user is None:
            raise unauthorized("Unauthorized")
        return user if user is ANONYMOUS else User(user.name, (*user.groups, AUTHENTICATED))

    def may(self, user: User, info: RequestInfo) -> bool:
        allow = self.allowed.get(user.name)
        return allow is None or allow(info)

    def authorize(self, user: User, info: RequestInfo) -> None:
        """Raise StatusError 403 unless the user is permitted this request."""
        if self.may(user, info):
            return
        if info.type is None:
            message = f'forbidden: User "{user.name}" cannot {info.verb} path "{info.path}"'
            raise StatusError(403, "Forbidden", message, {})
        subject = info.type.group_resource + (f' "{info.name}"' if info.name else "")
        resource = f"{info.type.resource}/{info.subresource}".rstrip("/")
        scope = f'in the namespace "{info.namespace}"' if info.namespace else "at the cluster scope"
        message = (
            f'{subject} is forbidden: User "{user.name}" cannot {info.verb} resource "{resource}" '
            f'in API group "{info.type.group}" {scope}'
        )
        details: Json = {"name": info.name, "group": info.type.group, "kind": info.type.resource}
        raise StatusError(403, "Forbidden", message, {key: value for key, value in details.items() if value})
