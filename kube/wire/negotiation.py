"""Content negotiation: the representations that a client accepts, in kube-apiserver's order of preference."""

from functools import lru_cache
from typing import NamedTuple

from kube.errors import bad_request
from kube.wire.codec_base import META_GROUP
from kube.wire.encoding import Encoding


class Representation(NamedTuple):
    """A representation of an object. `kind` is "" for the object itself, else the kind to convert it to, in
    `group`/`version`."""

    encoding: Encoding
    kind: str = ""
    version: str = ""
    group: str = ""


class _Clause(NamedTuple):
    type: str
    subtype: str
    quality: float
    parameters: dict[str, str]

    def before(self, other: "_Clause") -> bool:
        """Compare as goautoneg does. Two clauses can each be before the other, so the result depends on the sorting
        algorithm."""
        return (
            self.quality > other.quality
            or (self.type != "*" and other.type == "*")
            or (self.subtype != "*" and other.subtype == "*")
        )


METADATA_KIND = "PartialObjectMetadata"
METADATA_LIST_KIND = f"{METADATA_KIND}List"
METADATA_KINDS = frozenset({METADATA_KIND, METADATA_LIST_KIND})
META_VERSIONS = ("v1", "v1beta1")
TABLE_KIND = "Table"
MAX_ACCEPT = 4096
"""The most characters of an Accept header. Components send some 200."""
MAX_CLAUSES = 32
"""The most clauses of an Accept header; kubectl sends three."""
_CACHED = 256
# Go sorts up to 12 elements by insertion. No Kubernetes client sends more clauses.
_MAX_INSERTION = 12

# The media types of kube-apiserver's routes. A header with none of these and without "*/*" matches no route.
_PRODUCED = frozenset({"*/*", Encoding.JSON.value, Encoding.PROTOBUF.value, "application/yaml"})


def acceptable(accept: str | None) -> tuple[Representation, ...]:
    """The representations that an Accept header allows, preferred first; empty for a 406.

    None, "" and wildcards mean JSON. YAML, CBOR and unknown conversions are left out. StatusError 400 for a header
    over MAX_ACCEPT or MAX_CLAUSES.
    """
    text = accept or ""
    if len(text) > MAX_ACCEPT or text.count(",") >= MAX_CLAUSES:
        raise bad_request(f"the Accept header has more than {MAX_ACCEPT} characters or {MAX_CLAUSES} clauses")
    return _acceptable(text)


@lru_cache(maxsize=_CACHED)
def _acceptable(accept: str) -> tuple[Representation, ...]:
    if not accept:
        return (Representation(Encoding.JSON),)
    if not any(clause.partition(";")[0].strip(" ") in _PRODUCED for clause in accept.split(",")):
        return ()
    clauses = [clause for text in accept.split(",") if (clause := _clause(text)) is not None]
    representations = (
        representation for clause in _sorted(clauses) if (representation := _represented(clause))
    )
    return tuple(dict.fromkeys(representations))


def _clause(text: str) -> _Clause | None:
    """Parse one clause as goautoneg does: spaces are stripped, tabs are not, case matters, a malformed parameter is
    skipped."""
    media_type, _, rest = text.strip(" ").partition(";")
    type_, _, subtype = media_type.partition("/")
    type_ = type_.strip(" ")
    if not subtype:
        if type_ != "*":
            return None
        subtype = "*"
    subtype, _, surplus = subtype.partition("/")
    if surplus:
        return None
    quality, parameters = 1.0, {}
    for parameter in rest.split(";"):
        name, _, value = parameter.partition("=")
        value, _, surplus = value.partition("=")
        name = name.strip(" ")
        if surplus or not parameter.partition("=")[2]:
            continue
        if name == "q":
            quality = _quality(value)
        else:
            parameters[name] = value.strip(" ")
    return _Clause(type_, subtype.strip(" "), quality, parameters)


def _quality(text: str) -> float:
    """Parse the quality, a number of any size. Text that Go cannot parse counts as 0."""
    if not text.isascii() or text != text.strip():
        return 0.0
    try:
        return float(text)
    except ValueError:
        return 0.0


def _sorted(clauses: list[_Clause]) -> list[_Clause]:
    if len(clauses) > _MAX_INSERTION:
        return sorted(
            clauses, key=lambda clause: (-clause.quality, clause.type == "*", clause.subtype == "*")
        )
    for end in range(1, len(clauses)):
        at = end
        while at > 0 and clauses[at].before(clauses[at - 1]):
            clauses[at - 1], clauses[at] = clauses[at], clauses[at - 1]
            at -= 1
    return clauses


def _represented(clause: _Clause) -> Representation | None:
    """The representation that kube-apiserver chooses for a clause; None if it tries the next clause (apiserver,
    handlers/negotiation and handlers/rest.go)."""
    match clause.type, clause.subtype:
        case ("application", "json" | "*") | ("*", "*"):
            encoding = Encoding.JSON
        case ("application", "vnd.kubernetes.protobuf"):
            encoding = Encoding.PROTOBUF
        case _:
            return None
    parameters = clause.parameters
    if parameters.get("stream", "watch") not in ("", "watch") or parameters.get("sv", "v1") not in ("", "v1"):
        return None
    if not {"as", "g", "v"} & parameters.keys():
        return Representation(encoding)
    kind, group, version = (parameters.get(name, "") for name in ("as", "g", "v"))
    if group != META_GROUP or version not in META_VERSIONS:
        return None
    is_metadata = kind in METADATA_KINDS
    if is_metadata or (kind == TABLE_KIND and encoding is Encoding.JSON):
        return Representation(encoding, kind, version, group)
    return None
