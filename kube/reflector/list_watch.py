"""Defines the resource and scope that a reflector lists and watches."""

from __future__ import annotations

from typing import NamedTuple

from kube.requests.request_info import ResourceType
from kube.wire.encoding import Encoding


class ListWatch(NamedTuple):
    """A list and watch of one resource. The cloud evaluates the selectors, which are in canonical form."""

    type: ResourceType
    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""
    encoding: Encoding = Encoding.PROTOBUF
    metadata_only: bool = False
    """Request PartialObjectMetadata, which saves bytes if only names and labels are needed."""

    @property
    def path(self) -> str:
        return self.type.path(self.namespace)

    @property
    def query(self) -> dict[str, str]:
        selectors = {"labelSelector": self.label_selector, "fieldSelector": self.field_selector}
        return {name: text for name, text in selectors.items() if text}

    def watch_query(self, version: int, seconds: int, *, bookmarks: bool) -> dict[str, str]:
        """The query of a watch from a version. The server ends the watch after `seconds`."""
        asked = {"allowWatchBookmarks": "true"} if bookmarks else {}
        watch = {"watch": "true", "resourceVersion": str(version), "timeoutSeconds": str(seconds)}
        return {**self.query, **watch, **asked}

    @property
    def is_unfiltered(self) -> bool:
        """True if it reads all objects of the resource in all namespaces, with their full content."""
        return self == ListWatch(self.type, encoding=self.encoding)

    @property
    def accept(self) -> str:
        types = [Encoding.JSON] if self.encoding is Encoding.JSON else [Encoding.PROTOBUF, Encoding.JSON]
        return ",".join(types)

    @property
    def accept_names(self) -> str:
        """The Accept header of a list of names and versions. A pool's leader serves only full objects."""
        names = self._replace(metadata_only=True).accept_as("PartialObjectMetadataList")
        return f"{names},{self.accept}"

    def accept_as(self, kind: str) -> str:
        """The Accept header of a list (kind "…List") or of a watch."""
        if not self.metadata_only:
            return self.accept
        return ",".join(f"{media_type};as={kind};g=meta.k8s.io;v=v1" for media_type in self.accept.split(","))
