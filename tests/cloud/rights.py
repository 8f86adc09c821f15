"""Roles and bindings of RBAC, as objects to apply."""

from __future__ import annotations

from collections.abc import Iterable

from kube.json_type import Json

GROUP = "rbac.authorization.k8s.io"


def account(namespace: str, name: str) -> Json:
    """Return a service account as the subject of a binding."""
    return {"kind": "ServiceAccount", "namespace": namespace, "name": name}


def user(name: str) -> Json:
    return {"apiGroup": GROUP, "kind": "User", "name": name}


def group(name: str) -> Json:
    return {"apiGroup": GROUP, "kind": "Group", "name": name}


def rule(api_group: str, resources: str, verbs: str) -> Json:
    """Return an RBAC rule; resources and verbs are separated by blanks."""
    return {"apiGroups": [api_group], "resources": resources.split(), "verbs": verbs.split()}


def role(name: str, rules: Iterable[Json], namespace: str = "") -> Json:
    """A Role, or a ClusterRole without a namespace."""
    return {**_head("Role", name, namespace), "rules": [*rules]}


def bound(role_name: str, *subjects: Json, name: str = "", namespace: str = "") -> Json:
    """Return a binding of a role to these subjects; it has the role's name unless given one."""
    head = _head("RoleBinding", name or role_name, namespace)
    kind = head["kind"].removesuffix("Binding")
    return {**head, "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role_name}, "subjects": [*subjects]}


def rights(name: str, rules: Iterable[Json], *subjects: Json, namespace: str = "") -> list[Json]:
    """Return a role and its binding."""
    return [role(name, rules, namespace), bound(name, *subjects, namespace=namespace)]


def _head(kind: str, name: str, namespace: str) -> Json:
    where = {"namespace": namespace} if namespace else {}
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": kind if namespace else f"Cluster{kind}",
        "metadata": {"name": name, **where},
    }
