"""`scripts/schemas`: writes the protobuf messages of Kubernetes' own kinds, from the published sources, as packed text.

A `generated.proto` gives the layout on the wire; the struct tags of the Go types give the JSON names, and when JSON
omits a field. `kube.message_table` documents the lines of the text. The minimal schema is cut out of that text.
"""

from __future__ import annotations

import argparse
import gzip
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kube.schemas.published import PUBLISHED_FILE, published_text
from scripts.building.minimal_schema import MINIMAL_FILE, cut
from tests.cloud.build import MODULE, find_go

SOURCES = ("k8s.io/api", "k8s.io/apimachinery", "k8s.io/apiextensions-apiserver", "k8s.io/kube-aggregator")
"""The Go modules whose kinds kube-apiserver serves."""
LEFT_OUT = frozenset({"apimachinery.pkg.apis.testapigroup.v1", "api.imagepolicy.v1alpha1"})
"""Packages that no kube-apiserver serves."""
SCALARS = {"string": "s", "bool": "b", "int32": "i", "int64": "l", "double": "d", "bytes": "y"}

_PACKAGE = re.compile(r"^package k8s\.io\.([\w.]+);", re.MULTILINE)
_MESSAGE = re.compile(r"^message (\w+) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(
    r"^  (?:(?P<label>optional|required|repeated) (?P<type>[\w.]+)|map<string, (?P<value>[\w.]+)>)"
    r" (?P<name>\w+) = (?P<number>\d+);",
    re.MULTILINE,
)
_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_MEMBER = re.compile(r"^\t(?:\w+ +)?(?P<type>[*\[\]\w.]+) +`(?P<tags>[^`]*)`", re.MULTILINE)
_GROUP = re.compile(r'^const GroupName = "([\w.]*)"', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Member:
    """A field of the Go struct of a message.

    `name` is its JSON name: "" if inlined, None in a type that writes its JSON itself.
    """

    name: str | None
    is_pointer: bool
    omit: str


def main() -> int:
    """With `--write`, write the files that differ; otherwise print their names and exit with status 1."""
    parser = argparse.ArgumentParser(prog="scripts/schemas", description=__doc__)
    parser.add_argument("--write", action="store_true", help="Write the files that differ.")
    parser.add_argument(
        "--minimal", action="store_true", help="Only extract the minimal schema; needs no Go."
    )
    given = parser.parse_args()
    before = published_text()
    published = before
    if not given.minimal:
        published = "".join(f"{line}\n" for folder in source_folders() for line in lines_of(folder))
    minimal = "".join(f"{line}\n" for line in cut(published))
    differing = {}
    if published != before:
        differing[PUBLISHED_FILE] = gzip.compress(published.encode(), mtime=0)
    if minimal != MINIMAL_FILE.read_text():
        differing[MINIMAL_FILE] = minimal.encode()
    for path, content in differing.items():
        print(path)
        if given.write:
            path.write_bytes(content)
    return int(bool(differing) and not given.write)


def source_folders() -> list[Path]:
    """Return the folders of the modules in Go's cache, each at the version of the test control plane."""
    go = find_go()
    subprocess.run([go, "mod", "download", *SOURCES], cwd=MODULE, check=True)
    listing = subprocess.run(
        [go, "list", "-m", "-f", "{{.Dir}}", *SOURCES], cwd=MODULE, check=True, capture_output=True, text=True
    )
    return [Path(line) for line in listing.stdout.splitlines()]


def lines_of(module: Path) -> Iterator[str]:
    """Return the lines of all packages of a Go module."""
    for path in sorted(module.glob("**/generated.proto")):
        proto = path.read_text()
        match = _PACKAGE.search(proto)
        assert match is not None
        if match[1] not in LEFT_OUT:
            yield from package_lines(match[1], proto, _go_texts(path.parent))


def _go_texts(folder: Path) -> str:
    left_out = ("_test.go", ".pb.go", "_generated.go")
    return "\n".join(
        path.read_text() for path in sorted(folder.glob("*.go")) if not path.name.endswith(left_out)
    )


def package_lines(package: str, proto: str, go: str) -> Iterator[str]:
    """Return a package's lines: `@` and the package, `=` and its apiVersion if it has kinds, then one line per message.

    ValueError for a field that the message's struct lacks.
    """
    yield f"@{package}"
    group = _GROUP.search(go)
    if group is not None:
        version = package.rpartition(".")[2]
        yield f"={group[1]}/{version}" if group[1] else f"={version}"
    structs = dict(_STRUCT.findall(go))
    for name, body in _MESSAGE.findall(proto):
        struct = structs.get(name, "")
        is_kind = re.search(r'\bTypeMeta +`json:",inline', struct) is not None
        fields = _fields(package, name, body, _members(struct))
        yield "|".join((name + "!" * is_kind, *fields))


def _members(struct: str) -> Mapping[int, Member]:
    members: dict[int, Member] = {}
    for member in _MEMBER.finditer(struct):
        tags = dict(re.findall(r'(\w+):"([^"]*)"', member["tags"]))
        number = re.search(r"\b\d+\b", tags.get("protobuf", ""))
        if number is None:
            continue
        name, *options = tags.get("json", "").split(",")
        omit = "!" if "omitzero" in options else "?" if "omitempty" in options else ""
        is_hidden = "inline" not in options and name in ("", "-")
        members[int(number[0])] = Member(None if is_hidden else name, member["type"].startswith("*"), omit)
    return members


def _fields(package: str, message: str, body: str, members: Mapping[int, Member]) -> Iterator[str]:
    for field in _FIELD.finditer(body):
        number = int(field["number"])
        member = members.get(number, Member(None, is_pointer=False, omit=""))
        if members and number not in members:
            raise ValueError(f"no field {number} in struct {message} of {package}")
        many = "{" if field["value"] else "[" if field["label"] == "repeated" else ""
        kind = _kind(package, field["value"] or field["type"])
        name = field["name"] if member.name is None else member.name
        yield f"{number} {name} {many}{kind}{'*' * member.is_pointer}{member.omit}"


def _kind(package: str, kind: str) -> str:
    if kind in SCALARS:
        return SCALARS[kind]
    full = kind.lstrip(".").removeprefix("k8s.io.")
    return full.removeprefix(f"{package}.")


if __name__ == "__main__":
    sys.exit(main())
