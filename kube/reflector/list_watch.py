"""The question of a reflector: the resource and scope that it lists and watches."""

from __future__ import annotations

from typing import NamedTuple

from kube.requests.request_info import ResourceType
from kube.wire.encoding import Encoding


class ListWatch(NamedTuple):
    """A list and watch of one resource. The cloud evaluates the selectors, which are in their canonical form."""

    type: ResourceType
    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""
    encoding: Encoding = Encoding.PROTOBUF
    metadata_only: bool = False
    """Ask for PartialObjectMetadata. Where only names and labels matter, nothing else crosses the link."""

    @property
    def path(self) -> str:
        return self.type.path(self.namespace)

    @property
    def query(self) -> dict[str, str]:
        selectors = {"labelSelector": self.label_selector, "fieldSelector": self.field_selector}
        return {name: text for name, text in selectors.items() if text}

    def watch_query(self, version: int, seconds: int, *, bookmarks: bool) -> dict[str, str]:
        """The query of a watch from a version that the server ends after so many seconds."""
        asked = {"allowWatchBookmarks": "true"} if bookmarks else {}
        watch = {"watch": "true", "resourceVersion": str(version), "timeoutSeconds": str(seconds)}
        return {**self.query, **watch, **asked}

    @property
    def is_unfiltered(self) -> bool:
        """Whether it reads all objects of the resource in all namespaces, and their full content."""
        return self == ListWatch(self.type, encoding=self.encoding)

    @property
    def accept(self) -> str:
        types = [Encoding.JSON] if self.encoding is Encoding.JSON else [Encoding.PROTOBUF, Encoding.JSON]
        return ",".join(types)

    @property
    def accept_names(self) -> str:
        """The Accept header of a list of names and versions. A leader of a pool serves whole objects alone."""
        names = self._replace(metadata_only=True).accept_as("PartialObjectMetadataList")
        return f"{names},{self.accept}"

    def accept_as(self, kind: str) -> str:
        """The Accept header of a list (kind "…List") or of a watch."""
        if not self.metadata_only:
            return self.accept
        return ",".join(f"{media_type};as={kind};g=meta.k8s.io;v=v1" for media_type in self.accept.split(","))
