"""Reads what a person gives to `rules try`: a ConfigMap as YAML or JSON, or its data alone."""

from __future__ import annotations

import json
from typing import Any

import yaml

MAX_TEXT = 1024 * 1024
"""Bytes of the largest ConfigMap."""
MAX_DEPTH = 20
"""Collections within each other. libyaml's composer calls itself for each, and ends the process when the stack ends."""
MAX_NODES = 50_000
"""Keys, values and collections: read within a second or two."""


class Texts(yaml.CSafeLoader):
    """Reads dates as texts: PyYAML raises for a date that no calendar has."""


Texts.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in found if tag != "tag:yaml.org,2002:timestamp"]
    for first, found in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def read_rules(text: bytes) -> dict[str, str] | None:
    """The data of the ConfigMap in a text of one or more documents; None for one without data.

    ValueError in the reader's words where the text is no ConfigMap. It takes some seconds for the longest text, so a
    thread should run it.
    """
    if len(text) > MAX_TEXT:
        raise ValueError(f"the text is longer than {MAX_TEXT} bytes")
    try:
        _check_size(text)
        documents = [document for document in yaml.load_all(text, Loader=Texts) if document is not None]
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"the text is no YAML: {' '.join(str(error).split())}") from None
    configmaps = [document for document in documents if _is_configmap(document)]
    if len(configmaps) > 1:
        raise ValueError("the text has more than one ConfigMap")
    if configmaps:
        return _data(configmaps[0].get("data"))
    if len(documents) == 1 and isinstance(documents[0], dict) and "kind" not in documents[0]:
        # `data:` in front of the entries, as in a ConfigMap: no entry is a mapping.
        inner = documents[0].get("data")
        return _data(inner if isinstance(inner, dict) and len(documents[0]) == 1 else documents[0])
    if not documents:
        return None
    raise ValueError("the text has no ConfigMap: give one, or its data alone")


def _check_size(text: bytes) -> None:
    """ValueError for a text that costs too much to read; the events are read one by one, whatever they describe."""
    depth = 0
    for nodes, event in enumerate(yaml.parse(text, Loader=yaml.CSafeLoader)):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("the text refers to itself (*name): write it out")
        if depth > MAX_DEPTH or nodes > MAX_NODES:
            raise ValueError(f"the text has more than {MAX_NODES} nodes, or {MAX_DEPTH} within each other")


def _is_configmap(document: Any) -> bool:
    return isinstance(document, dict) and document.get("kind") == "ConfigMap"


def _data(configmap: Any) -> dict[str, str] | None:
    if configmap is None:
        return None
    if not isinstance(configmap, dict):
        raise ValueError("data is no mapping of keys to texts")
    for key, value in configmap.items():
        if not isinstance(key, str) or not isinstance(value, str):
            shown = json.dumps(value, default=str)[:40]
            raise ValueError(f"data.{key} is no text but {shown}: put it in quotation marks")
    return configmap
