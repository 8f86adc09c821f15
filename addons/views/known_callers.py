"""Stores the cloud's last answers about tokens and their users, for outages and for the next process.

No token is stored, only a digest under a key of this machine. A right is known for exactly the token with which the
cloud permitted a request. Tokens that the cloud issued to this node for one service account share their answers:
kubelet rotates them hourly, and a pod that starts in an outage presents one that the cloud has never seen.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

import orjson

from addons.requests.caller import claims_of, expiry_of
from kube.bounds import Recent, reached
from kube.http.access_review import ATTRIBUTES, Right
from kube.json_type import Json

MAX_TOKENS = 4096
"""Known tokens: 110 pods get some 2,600 a day. The least recently used is evicted first."""
MAX_OWNERS = 1024
"""Tokens and service accounts with known rights."""
MAX_ANSWERS = 128
"""Answers about one token or account. The least recently used is evicted, and never one about another token or
account."""
STEP = 3600
"""Seconds by which a time on disk may lag behind, because each write costs a transaction."""
DAY = 86_400
TOKEN, RIGHTS = "token ", "rights "
"""Prefixes of the rows' names."""
ACCOUNTS = "system:serviceaccount:"
CREDENTIAL_FIELDS = "authentication.kubernetes.io/"
"""The prefix of the extra fields that kube-apiserver adds to a user: the token's id, its pod, its node.

They differ from token to token and give no right. All other extra fields may restrict a token's rights.
"""

type WriteRow = Callable[[str, bytes | None], None]
"""Writes a row, or deletes it."""


class KnownToken(NamedTuple):
    """A token whose user the cloud has named. All times are wall time in seconds."""

    user: str
    expiry: float | None
    reviewed_at: float
    """When the cloud last named the token's user."""
    used: float
    is_given: bool = False
    """Whether the cloud issued it to this node, for a pod."""


class StoredAnswer(NamedTuple):
    """The cloud's answer about a right ("" for a permission, or the refusal) or the user of a token; and its wall
    time."""

    answer: str
    at: float


class KnownCallers:
    """Stores digests of tokens, with their users and rights. Both are bounded."""

    def __init__(self, key: bytes = b"", clock: Callable[[], float] = time.time) -> None:
        """`clock` returns wall time, which continues over a restart but may be wrong: see `addons.offline.garbage`."""
        self._key = key or secrets.token_bytes(32)
        self._clock = clock
        self.write_row: WriteRow = lambda _name, _row: None
        self._tokens: OrderedDict[str, KnownToken] = OrderedDict()
        self._rights: OrderedDict[str, Recent[Right, StoredAnswer]] = OrderedDict()
        """Rights by the token's digest, or by the user if the cloud issued the token to this node."""
        self._written: dict[str, float] = {}
        """When each row was last written."""

    def digest_of(self, authorization: str) -> str:
        """Return the digest that identifies a token."""
        return hmac.new(self._key, authorization.encode(errors="surrogateescape"), hashlib.sha256).hexdigest()

    # -- the cloud's answers ----------------------------------------------------------------------------------------

    def store_user(self, authorization: str, user: str) -> None:
        """Store the user of a token, as the cloud has just named it."""
        digest, now = self.digest_of(authorization), self._clock()
        known = self._tokens.get(digest)
        is_given = known is not None and known.is_given
        self._put(digest, KnownToken(user, expiry_of(authorization), now, now, is_given))

    def store_issued(self, token: str) -> None:
        """Store a token that the cloud has issued to this node's kubelet, with the cloud as its only audience."""
        user = _account_in(token)
        if not user:
            return
        names = json.loads(user)
        like = (
            each.user
            for each in self._tokens.values()
            if each.is_given and _is_same_account(each.user, names)
        )
        authorization, now = f"Bearer {token}", self._clock()
        known = KnownToken(next(like, user), expiry_of(authorization), now, now, is_given=True)
        self._put(self.digest_of(authorization), known)

    def store_answer(self, authorization: str, right: Right, refusal: str = "") -> None:
        """Store the cloud's answer about a right of a token: "" for a permission, or the refusal."""
        owner = self._owner(self.digest_of(authorization))
        rights = self._rights_of(owner)
        known = rights.get(right)
        rights[right] = StoredAnswer(refusal, self._clock())
        self._write_rights(owner, is_new=known is None or known.answer != refusal)

    def delete_token(self, authorization: str) -> None:
        """Delete a token, because the cloud has refused it with 401."""
        self._drop(self.digest_of(authorization))

    def forget(self, authorization: str, right: Right | None) -> None:
        """Delete the cloud's answer about a right of a token, or the token itself if `right` is None."""
        digest = self.digest_of(authorization)
        if right is None:
            self._drop(digest)
        elif (rights := self._rights.get(owner := self._owner(digest))) is not None and right in rights:
            del rights[right]
            self._write_rights(owner)

    # -- questions --------------------------------------------------------------------------------------------------

    def user_of(self, authorization: str) -> StoredAnswer | None:
        """Return the user of a token; None if the cloud has not named it."""
        known = self._used(self.digest_of(authorization))
        return StoredAnswer(known.user, known.reviewed_at) if known is not None else None

    def right_of(self, authorization: str, right: Right) -> StoredAnswer | None:
        """Return the cloud's answer about a right of a token; None if there is none.

        A right to all namespaces includes each one.
        """
        digest = self.digest_of(authorization)
        self._used(digest)
        rights = self._rights.get(self._owner(digest))
        if rights is None:
            return None
        stored = rights.use(right)
        if stored is None and (everywhere := _everywhere(right)) is not None:
            stored = rights.use(everywhere)
            return stored if stored is not None and not stored.answer else None
        return stored

    # -- over restarts ----------------------------------------------------------------------------------------------

    def load_rows(self, rows: Mapping[str, bytes | None]) -> Collection[str]:
        """Load the rows of an earlier process; return the names of unreadable ones. Answers of this process take
        precedence."""
        unreadable = []
        tokens: dict[str, KnownToken] = {}
        for name, row in rows.items():
            try:
                if name.startswith(TOKEN):
                    tokens[name.removeprefix(TOKEN)] = _token_in(row or b"")
                else:
                    self._take_rights(row or b"")
            except (ValueError, TypeError):
                unreadable.append(name)
        for digest, token in sorted(tokens.items(), key=lambda each: each[1].used, reverse=True):
            if len(self._tokens) < MAX_TOKENS and digest not in self._tokens:
                self._tokens[digest] = token
                self._tokens.move_to_end(digest, last=False)
                self._written[TOKEN + digest] = token.used
        return unreadable

    def delete_expired(self, days: int) -> int:
        """Delete tokens that have expired, or were unused for so many days; return their number."""
        now = self._clock()
        left = [
            digest
            for digest, known in self._tokens.items()
            if now - known.used >= days * DAY or (known.expiry is not None and known.expiry <= now)
        ]
        for digest in left:
            self._drop(digest)
        return len(left)

    def write_all(self) -> None:
        """Write all rows again, after the database was lost."""
        for digest in self._tokens:
            self._write_token(digest, is_new=True)
        for owner in self._rights:
            self._write_rights(owner)

    def _put(self, digest: str, token: KnownToken) -> None:
        known = self._tokens.get(digest)
        self._tokens[digest] = token
        self._tokens.move_to_end(digest)
        self._write_token(digest, is_new=known is None or known.user != token.user)
        while len(self._tokens) > MAX_TOKENS:
            self._drop(next(iter(self._tokens)))
            reached("tokens with reviews")

    def _owner(self, digest: str) -> str:
        """Return the owner of a token's rights: the user, if the cloud issued the token to this node, else the token's
        digest."""
        known = self._tokens.get(digest)
        return known.user if known is not None and known.is_given else digest

    def _used(self, digest: str) -> KnownToken | None:
        known = self._tokens.get(digest)
        if known is not None:
            self._tokens[digest] = known._replace(used=self._clock())
            self._tokens.move_to_end(digest)
            self._write_token(digest)
        return known

    def _rights_of(self, owner: str) -> Recent[Right, StoredAnswer]:
        if owner not in self._rights:
            self._rights[owner] = Recent(MAX_ANSWERS, "reviews of a token")
        self._rights.move_to_end(owner)
        while len(self._rights) > MAX_OWNERS:
            oldest, _ = self._rights.popitem(last=False)
            self._delete(_rights_row(oldest))
            reached("tokens with reviews")
        return self._rights[owner]

    def _take_rights(self, row: bytes) -> None:
        owner, stored = _rights_in(row)
        if len(self._rights) >= MAX_OWNERS and owner not in self._rights:
            return
        here = self._rights_of(owner)
        for right, each in stored.items():
            here.setdefault(right, each)

    def _drop(self, digest: str) -> None:
        owner = self._owner(digest)
        self._tokens.pop(digest, None)
        self._delete(TOKEN + digest)
        if owner == digest or not any(each.is_given and each.user == owner for each in self._tokens.values()):
            self._rights.pop(owner, None)
            self._delete(_rights_row(owner))

    def _write_token(self, digest: str, *, is_new: bool = False) -> None:
        if self._is_due(TOKEN + digest, is_new=is_new):
            self.write_row(TOKEN + digest, orjson.dumps([*self._tokens[digest]]))

    def _write_rights(self, user: str, *, is_new: bool = True) -> None:
        if self._is_due(name := _rights_row(user), is_new=is_new):
            self.write_row(
                name, orjson.dumps([user, [[right, *stored] for right, stored in self._rights[user].items()]])
            )

    def _is_due(self, name: str, *, is_new: bool) -> bool:
        now = self._clock()
        if not is_new and 0 <= now - self._written.get(name, -STEP) < STEP:
            return False
        self._written[name] = now
        return True

    def _delete(self, name: str) -> None:
        # Also if this process has not written it: the row may be an unread one of an earlier process.
        self._written.pop(name, None)
        self.write_row(name, None)


def _everywhere(right: Right) -> Right | None:
    """Return the same right for all namespaces; None for a right without a namespace."""
    if len(right) != len(ATTRIBUTES) or not right[ATTRIBUTES.index("namespace")]:
        return None
    verb, group, version, resource, subresource, _, _ = right
    return verb, group, version, resource, subresource, "", ""


def _account_in(token: str) -> str:
    """Return the user of a service account's token as a review names it; "" for another token.

    The token is parsed without verification: the cloud itself has just issued it.
    """
    claims = claims_of(f"Bearer {token}")
    match claims:
        case {
            "sub": str(name),
            "kubernetes.io": {"namespace": str(namespace), "serviceaccount": {"uid": str(uid)}},
        }:
            groups = ["system:authenticated", "system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
            return user_text(name, groups, uid, {}) if name.startswith(ACCOUNTS) else ""
    return ""


def user_text(name: str, groups: Iterable[str], uid: str, extra: Json) -> str:
    """Format a user as one text, the same for each of its tokens."""
    extra = {field: extra[field] for field in extra if not field.startswith(CREDENTIAL_FIELDS)}
    return json.dumps((name, sorted(groups), uid, extra), sort_keys=True)


def _is_same_account(user: str, wanted: list[Json]) -> bool:
    """Whether two users are the same service account, by name and uid."""
    name, _, uid, _ = json.loads(user)
    return (name, uid) == (wanted[0], wanted[2])


def _rights_row(owner: str) -> str:
    return RIGHTS + hashlib.sha256(owner.encode()).hexdigest()[:32]


def _token_in(row: bytes) -> KnownToken:
    match orjson.loads(row):
        case [
            str(user),
            (int() | float() | None) as expiry,
            int() | float() as reviewed_at,
            int() | float() as used,
            bool(is_given),
        ]:
            return KnownToken(user, expiry, reviewed_at, used, is_given)
    raise ValueError("it is no known token")


def _rights_in(row: bytes) -> tuple[str, dict[Right, StoredAnswer]]:
    match orjson.loads(row):
        case [str(owner), list(rights)]:
            return owner, {
                tuple(map(str, right)): StoredAnswer(str(answer), float(at)) for right, answer, at in rights
            }
    raise ValueError("these are no rights")
