"""HTTP writes: the effect of a POST, PUT, PATCH or DELETE of a resource on the store, and its response."""

from __future__ import annotations

from dataclasses import dataclass

from kube.json_type import Json
from kube.requests.request_info import RequestInfo
from tests.cloud.scriptable.access import Access, User
from tests.cloud.scriptable.admission import check_namespace
from tests.cloud.scriptable.bodies import parse_delete_options, parse_object, parse_patch
from tests.cloud.scriptable.object_store import ObjectStore
from tests.cloud.scriptable.questions import answer_question, issue_token
from tests.cloud.scriptable.resources import Resource, ResourceTable, Trait


@dataclass(frozen=True, slots=True)
class Write:
    info: RequestInfo
    resource: Resource
    user: User
    content_type: str
    body: bytes


class Writer:
    """Execute writes. Every method returns (HTTP status, object) and raises StatusError like kube-apiserver."""

    def __init__(self, store: ObjectStore, table: ResourceTable, access: Access) -> None:
        self._store = store
        self._table = table
        self._access = access

    def answer(self, write: Write) -> tuple[int, Json]:
        match write.info.verb:
            case "create":
                return 201, self._create(write)
            case "update":
                return self._update(write)
            case "patch":
                return 200, self._patch(write)
            case _:
                return 200, self._delete(write)

    def _create(self, write: Write) -> Json:
        info, resource = write.info, write.resource
        if info.subresource:
            account = self._store.get(resource, info.name, info.namespace)
            return issue_token(self._access, account, parse_delete_options(write.content_type, write.body))
        value = parse_object(resource, write.content_type, write.body)
        if Trait.QUESTION in resource.traits:
            return answer_question(self._access, write.user, resource, value)
        if resource.namespaced:
            self._store.find(self._table.named("namespaces"), info.namespace)
        return self._store.create(
            value, resource=resource, namespace=info.namespace if resource.namespaced else ""
        )

    def _update(self, write: Write) -> tuple[int, Json]:
        info, resource = write.info, write.resource
        value = parse_object(resource, write.content_type, write.body)
        check_namespace(resource, value["metadata"], info.namespace)
        key = (info.namespace if resource.namespaced else "", info.name)
        code = 200 if key in self._store.collection(resource).objects else 201
        return code, self._store.update(value, resource=resource, subresource=info.subresource)

    def _patch(self, write: Write) -> Json:
        info = write.info
        patch_type, patch = parse_patch(write.content_type, write.body)
        return self._store.patch(
            write.resource,
            info.name,
            patch,
            info.namespace,
            patch_type=patch_type,
            subresource=info.subresource,
        )

    def _delete(self, write: Write) -> Json:
        info, resource = write.info, write.resource
        last = self._store.delete(resource, info.name, info.namespace)
        if Trait.DELETE_SHOWS_OBJECT in resource.traits:
            return last
        details = {
            "name": info.name,
            "group": resource.group,
            "kind": resource.name,
            "uid": last["metadata"]["uid"],
        }
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": {name: text for name, text in details.items() if text},
        }
