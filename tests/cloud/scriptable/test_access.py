"""Who a caller is, and what a refusal says."""

from __future__ import annotations

import pytest

from kube.errors import StatusError
from kube.requests.request_info import parse_request
from tests.cloud.scriptable.access import ANONYMOUS, Access, User


@pytest.fixture
def access() -> Access:
    access = Access()
    access.tokens["good"] = User("alice", ("people",))
    access.certificates["system:node:n1"] = User("system:node:n1", ("system:nodes",))
    return access


@pytest.mark.parametrize(
    ("header", "common_name", "user"),
    [
        ("Bearer good", "", "alice"),
        ("bearer  good", "", "alice"),
        ("", "system:node:n1", "system:node:n1"),
        ("Bearer good", "system:node:n1", "alice"),
        ("", "", "system:anonymous"),
        ("Basic eDp5", "", "system:anonymous"),
    ],
)
def test_callers(access: Access, header: str, common_name: str, user: str) -> None:
    assert access.authenticate({"Authorization": header}, common_name).name == user


def test_known_callers_are_authenticated(access: Access) -> None:
    groups = access.authenticate({"Authorization": "Bearer good"}, "").groups
    assert groups == ("people", "system:authenticated")


@pytest.mark.parametrize(
    ("header", "common_name"), [("Bearer bad", ""), ("Bearer", ""), ("", "system:node:n2")]
)
def test_strangers(access: Access, header: str, common_name: str) -> None:
    with pytest.raises(StatusError) as refused:
        access.authenticate({"Authorization": header}, common_name)
    assert (refused.value.code, refused.value.message) == (401, "Unauthorized")


def test_nobody_can_be_refused(access: Access) -> None:
    access.anonymous = False
    with pytest.raises(StatusError) as refused:
        access.authenticate({}, "")
    assert refused.value.code == 401


@pytest.mark.parametrize(
    ("method", "target", "message"),
    [
        (
            "GET",
            "/api/v1/nodes",
            'nodes is forbidden: User "system:anonymous" cannot list resource "nodes" in API group "" at the cluster '
            "scope",
        ),
        (
            "GET",
            "/api/v1/namespaces/t/configmaps/x",
            'configmaps "x" is forbidden: User "system:anonymous" cannot get resource "configmaps" in API group "" in '
            'the namespace "t"',
        ),
        (
            "POST",
            "/api/v1/namespaces/t/serviceaccounts/x/token",
            'serviceaccounts "x" is forbidden: User "system:anonymous" cannot create resource "serviceaccounts/token" '
            'in API group "" in the namespace "t"',
        ),
        (
            "GET",
            "/apis/discovery.k8s.io/v1/endpointslices?watch=1",
            'endpointslices.discovery.k8s.io is forbidden: User "system:anonymous" cannot watch resource '
            '"endpointslices" in API group "discovery.k8s.io" at the cluster scope',
        ),
        ("GET", "/foo", 'forbidden: User "system:anonymous" cannot get path "/foo"'),
    ],
)
def test_refusals_in_the_words_of_a_real_server(
    access: Access, method: str, target: str, message: str
) -> None:
    access.allowed[ANONYMOUS.name] = lambda info: False
    with pytest.raises(StatusError) as refused:
        access.authorize(ANONYMOUS, parse_request(method, target))
    assert (refused.value.code, refused.value.reason, refused.value.message) == (403, "Forbidden", message)


def test_a_user_without_a_rule_may_do_everything(access: Access) -> None:
    access.allowed["bob"] = lambda info: False
    assert access.may(User("alice"), parse_request("DELETE", "/api/v1/nodes/n"))
    assert not access.may(User("bob"), parse_request("GET", "/version"))
