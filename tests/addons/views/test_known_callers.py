"""The cloud's reviews of tokens: stored by keyed digests, bounded, loaded after a restart, and ended by a refusal."""

from __future__ import annotations

import orjson
import pytest

from addons.views.known_callers import DAY, MAX_ANSWERS, MAX_OWNERS, MAX_TOKENS, STEP, KnownCallers, user_text
from kube.http.access_review import Right, right_to
from kube.requests.request_info import parse_request
from tests.addons.requests.test_caller import jwt
from tests.support.clock import Clock

KEY = b"k" * 32
TOKEN, OTHER = "Bearer secret-token", "Bearer other-token"
GROUPS = ["system:authenticated", "system:serviceaccounts", "system:serviceaccounts:kube-system"]
USER = user_text("system:serviceaccount:kube-system:kube-proxy", GROUPS, "u1", {})


def right(path: str, method: str = "GET") -> Right:
    return right_to(parse_request(method, path))


SERVICES = right("/api/v1/services")
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


class Node:
    """The rows on disk, and the successive processes that use them."""

    def __init__(self) -> None:
        self.clock = Clock(1_000_000.0)
        self.rows: dict[str, bytes | None] = {}
        self.written = 0
        self.known = self.start()

    def start(self) -> KnownCallers:
        self.known = KnownCallers(KEY, self.clock)
        self.known.write_row = self._keep
        assert not self.known.load_rows(self.rows)
        return self.known

    def _keep(self, name: str, row: bytes | None) -> None:
        self.written += 1
        if row is None:
            self.rows.pop(name, None)
        else:
            self.rows[name] = row

    def user(self, authorization: str) -> str:
        said = self.known.user_of(authorization)
        return said.answer if said is not None else ""

    def right(self, authorization: str, wanted: Right = SERVICES) -> str | None:
        said = self.known.right_of(authorization, wanted)
        return said.answer if said is not None else None


@pytest.fixture
def node() -> Node:
    return Node()


def test_reviews_are_loaded_after_a_restart(node: Node) -> None:
    node.known.store_user(TOKEN, USER)
    node.known.store_answer(TOKEN, SERVICES)
    node.known.store_answer(TOKEN, right("/api/v1/secrets"), "forbidden: no")
    node.known.store_answer(OTHER, right("/version"))
    node.start()
    assert (node.user(TOKEN), node.right(TOKEN)) == (USER, "")
    assert node.right(TOKEN, right("/api/v1/secrets")) == "forbidden: no"
    assert node.right(TOKEN, right("/api/v1/pods")) is None
    assert (node.user(OTHER), node.right(OTHER, right("/version"))) == ("", "")


def test_tokens_are_stored_as_digests_that_need_the_key(node: Node) -> None:
    node.known.store_user(TOKEN, USER)
    node.known.store_answer(TOKEN, SERVICES)
    assert "secret-token" not in repr(node.rows)
    another = KnownCallers(b"a" * 32, node.clock)
    another.load_rows(node.rows)
    assert another.user_of(TOKEN) is None


@pytest.mark.parametrize("restarts", [False, True])
def test_a_401_deletes_a_token_and_its_reviews(node: Node, restarts: bool) -> None:
    node.known.store_user(TOKEN, USER)
    node.known.store_answer(TOKEN, SERVICES)
    if restarts:
        node.start()
    node.known.delete_token(TOKEN)
    assert not node.rows
    node.start()
    assert (node.user(TOKEN), node.right(TOKEN)) == ("", None)


def test_a_revoked_right_stays_revoked(node: Node) -> None:
    node.known.store_user(TOKEN, USER)
    node.known.store_answer(TOKEN, SERVICES)
    node.known.store_answer(TOKEN, SERVICES, "forbidden: no more")
    node.start()
    assert node.right(TOKEN) == "forbidden: no more"
    node.known.forget(TOKEN, SERVICES)
    assert node.right(TOKEN) is None
    node.known.forget(TOKEN, None)
    node.start()
    assert node.user(TOKEN) == ""


def test_tokens_of_one_service_account_share_reviews(node: Node) -> None:
    """kubelet fetched the second token minutes before the outage, and no pod has used it yet."""

    def given(jti: str, uid: str = "u1", name: str = "kube-proxy") -> str:
        """Return a token that the cloud issued for a pod of a service account."""
        account = {
            "namespace": "kube-system",
            "serviceaccount": {"name": name, "uid": uid},
            "pod": {"uid": jti},
        }
        claims = {
            "sub": f"system:serviceaccount:kube-system:{name}",
            "jti": jti,
            "exp": 2e9,
            "kubernetes.io": account,
        }
        return jwt(claims).removeprefix("Bearer ")

    first, second = given("1"), given("2")
    node.known.store_issued(first)
    node.known.store_user(f"Bearer {first}", USER)
    node.known.store_answer(f"Bearer {first}", right(EVENTS, "POST"))
    node.known.store_issued(second)
    node.start()
    assert node.user(f"Bearer {second}") == USER, "as the cloud would name it"
    assert node.right(f"Bearer {second}", right(EVENTS, "POST")) == ""
    for stranger in (given("3"), given("4", uid="made anew"), given("5", name="other")):
        assert node.right(f"Bearer {stranger}", right(EVENTS, "POST")) is None
    node.known.store_issued(given("4", uid="made anew"))
    assert node.right(f"Bearer {given('4', uid='made anew')}", right(EVENTS, "POST")) is None
    node.known.delete_token(f"Bearer {first}")
    assert node.right(f"Bearer {second}", right(EVENTS, "POST")) == "", "its pod lives on"
    node.known.delete_token(f"Bearer {second}")
    node.known.store_issued(given("6"))
    assert node.right(f"Bearer {given('6')}", right(EVENTS, "POST")) is None


def test_a_token_issued_elsewhere_has_only_its_own_permissions(node: Node) -> None:
    for token in (TOKEN, OTHER):
        node.known.store_user(token, USER)
    node.known.store_answer(TOKEN, SERVICES)
    assert (node.right(TOKEN), node.right(OTHER)) == ("", None)
    node.known.store_issued("no JWT")
    assert node.user("Bearer no JWT") == ""


def test_a_cluster_wide_permission_applies_to_each_namespace(node: Node) -> None:
    node.known.store_answer(TOKEN, right("/apis/events.k8s.io/v1/events", "POST"))
    assert node.right(TOKEN, right(EVENTS, "POST")) == ""
    assert node.right(TOKEN, right(EVENTS)) is None
    node.known.store_answer(TOKEN, right("/api/v1/pods"), "forbidden: no")
    assert node.right(TOKEN, right("/api/v1/namespaces/a/pods")) is None, "a no everywhere is none to each"


def test_unused_callers_and_expired_tokens_are_deleted(node: Node) -> None:
    ends = jwt({"exp": node.clock.now + 5 * DAY})
    for token in (TOKEN, OTHER, ends):
        node.known.store_user(token, USER)
        node.known.store_answer(token, SERVICES)
    node.clock.now += 10 * DAY
    node.right(OTHER)
    assert node.known.delete_expired(14) == 1
    assert (node.user(ends), node.user(TOKEN)) == ("", USER)
    node.start()
    node.clock.now += 13 * DAY
    node.right(OTHER)
    node.clock.now += DAY
    assert node.known.delete_expired(14) == 1
    assert [row for row in node.rows if row.startswith("token ")] == ["token " + node.known.digest_of(OTHER)]


def test_a_repeated_review_is_written_once_an_hour(node: Node) -> None:
    node.known.store_user(TOKEN, USER)
    node.known.store_answer(TOKEN, SERVICES)
    written = node.written
    for _ in range(20):
        node.clock.now += 60
        node.known.store_user(TOKEN, USER)
        node.known.store_answer(TOKEN, SERVICES)
        node.right(TOKEN)
    assert node.written == written
    node.clock.now += STEP
    node.known.store_answer(TOKEN, SERVICES)
    assert node.written == written + 1
    node.clock.now -= 10 * DAY
    node.known.store_answer(TOKEN, SERVICES)
    assert node.written == written + 2, "a clock that was set back"


def test_stored_reviews_are_bounded_on_disk_too(node: Node) -> None:
    for number in range(MAX_ANSWERS + 3):
        node.known.store_answer(TOKEN, right(f"/api/v1/namespaces/n{number}/services"))
    (row,) = node.rows.values()
    assert len(orjson.loads(row or b"")[1]) == MAX_ANSWERS
    for number in range(MAX_TOKENS + 3):
        node.known.store_user(f"Bearer {number}", f"user {number}")
        node.known.store_answer(f"Bearer {number}", SERVICES)
    kinds = [name.partition(" ")[0] for name in node.rows]
    assert (kinds.count("token"), kinds.count("rights")) == (MAX_TOKENS, MAX_OWNERS)
    node.start()
    assert node.user(f"Bearer {MAX_TOKENS + 2}")
    assert not node.user("Bearer 0")


def test_unreadable_rows_are_reported_and_known_reviews_stay(node: Node) -> None:
    node.known.store_user(TOKEN, "as another process heard")
    rows = dict(node.rows)
    known = KnownCallers(KEY, node.clock)
    known.store_user(TOKEN, USER)
    bad = {"token x": b"[1]", "token y": None, "rights z": b'["u",[[1]]]', "rights w": b"{"}
    assert set(known.load_rows({**rows, **bad})) == set(bad)
    said = known.user_of(TOKEN)
    assert said is not None
    assert said.answer == USER
