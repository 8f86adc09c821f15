"""Content negotiation. The table's expected results come from kube-apiserver 1.36, for lists of services."""

import pytest

from kube.errors import StatusError
from kube.wire.encoding import Encoding
from kube.wire.negotiation import (
    MAX_ACCEPT,
    MAX_CLAUSES,
    METADATA_KIND,
    METADATA_LIST_KIND,
    Representation,
    acceptable,
)

JSON, PROTOBUF = Representation(Encoding.JSON), Representation(Encoding.PROTOBUF)
META = "g=meta.k8s.io;v=v1"
TABLE = Representation(Encoding.JSON, "Table", "v1", "meta.k8s.io")
LIST_JSON = Representation(Encoding.JSON, METADATA_LIST_KIND, "v1", "meta.k8s.io")
LIST_PROTOBUF = Representation(Encoding.PROTOBUF, METADATA_LIST_KIND, "v1", "meta.k8s.io")
PARTIAL_PROTOBUF = Representation(Encoding.PROTOBUF, METADATA_KIND, "v1", "meta.k8s.io")

J, P = "application/json", "application/vnd.kubernetes.protobuf"


@pytest.mark.parametrize(
    ("accept", "representations"),
    [
        # Accept headers of real clients
        (None, (JSON,)),
        ("", (JSON,)),
        (f"{P},{J}", (PROTOBUF, JSON)),  # kubelet
        (f"{P}, */*", (PROTOBUF, JSON)),  # kube-proxy, coredns
        (f"{J}, */*", (JSON,)),  # flannel
        (f"{J};q=0.9,application/cbor;q=1", (JSON,)),  # a dynamic client that would like CBOR
        ("application/cbor, */*", (JSON,)),
        (
            f"{J};as=Table;v=v1;g=meta.k8s.io,{J};as=Table;v=v1beta1;g=meta.k8s.io,{J}",  # kubectl
            (TABLE, Representation(Encoding.JSON, "Table", "v1beta1", "meta.k8s.io"), JSON),
        ),
        (
            f"{P};as=PartialObjectMetadataList;{META},{J};as=PartialObjectMetadataList;{META},{J}",
            (LIST_PROTOBUF, LIST_JSON, JSON),  # a metadata client that lists
        ),
        (f"{P};as=PartialObjectMetadata;{META}", (PARTIAL_PROTOBUF,)),  # and one that watches
        # quality and order
        (f"{J};q=0.5,{P}", (PROTOBUF, JSON)),
        (f" {J} ; q=0.9 , {P} ;q=0.95", (PROTOBUF, JSON)),
        (f"{J};q=0,{P};q=0.1", (PROTOBUF, JSON)),  # zero is last, not never
        (f"{J};q=abc,{P};q=0.3", (PROTOBUF, JSON)),
        (f"{J};q=2,{P};q=1.5", (JSON, PROTOBUF)),
        (f"{J};q=-1,{P};q=0", (PROTOBUF, JSON)),
        (f"{J};q= 1,{P};q=0.5", (PROTOBUF, JSON)),  # " 1" is not a number for Go
        (f"{J};q=\u0661,{P};q=0.5", (PROTOBUF, JSON)),
        (f"{P};q=0.3,{J};q=inf", (JSON, PROTOBUF)),
        (f"{J};Q=0.1,{P}", (JSON, PROTOBUF)),
        # a wildcard sorts after its predecessor, whatever its quality, and not after all
        (f"*/*;q=1,{P};q=0.1", (PROTOBUF, JSON)),
        (f"{P};q=0.1,*/*;q=0.9", (JSON, PROTOBUF)),
        (f"application/*,{P}", (PROTOBUF, JSON)),
        # parameters
        (f"{J};stream=watch", (JSON,)),
        (f"{J};stream=foo,{P}", (PROTOBUF,)),
        (f"{J};sv=v1", (JSON,)),
        (f"{J};sv=v2,{P}", (PROTOBUF,)),
        (f"{J};pretty=1;charset=utf-8;foo=bar", (JSON,)),
        (f"{J};as=;v=;g=", (JSON,)),
        (f"{J};a=b=c;", (JSON,)),
        (f"{J}; as=Table ;v=v1; g=meta.k8s.io", (TABLE,)),
        (f"*/*;as=Table;{META}", (TABLE,)),
        (f"{J};as=Table;as=PartialObjectMetadataList;{META}", (LIST_JSON,)),
        (f"{P};as=Table;{META},{J}", (JSON,)),
        (f"{J};as=Foo;{META},{J}", (JSON,)),
        (f"{J};as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io,{J}", (JSON,)),
        # malformed clauses
        (f"json,,{J}/x,{J}", (JSON,)),
        (f"*,{P}", (PROTOBUF, JSON)),
    ],
)
def test_accepted_media_types_are_ordered_like_by_kube_apiserver(
    accept: str | None, representations: tuple[Representation, ...]
) -> None:
    assert acceptable(accept) == representations


@pytest.mark.parametrize(
    "accept",
    [
        *["text/html", "text/*", "application/cbor", "APPLICATION/JSON", "json", ",,,", " "],
        *["*", "application/*", "*/json", f"application/*;as=Table;{META}", f"{J}/x", f"\t{J}"],
        *[f"{J};as=Table", f"{J};v=v1", f"{J};{META}", f"{J};as=Foo;{META}", f'{J};as="Table";{META}'],
        *[f"{P};as=Table;{META}", f"{J};as=Table;g=meta.k8s.io;v=v2", f"{J};stream=foo"],
    ],
)
def test_an_unsupported_accept_header_is_406(accept: str) -> None:
    assert acceptable(accept) == ()


def test_yaml_is_only_supported_by_the_cloud() -> None:
    assert acceptable("application/yaml") == ()
    assert acceptable(f"application/yaml,{P}") == (PROTOBUF,)


def test_many_clauses_are_sorted_too() -> None:
    many = ",".join(f"text/x{number}" for number in range(MAX_CLAUSES - 3))
    assert acceptable(f"{many},*/*,{J};q=0.5,{P};q=0.9") == (JSON, PROTOBUF)


@pytest.mark.parametrize(
    ("accept", "longer"),
    [(",".join([J] * MAX_CLAUSES), ","), (f"{J};a={'b' * (MAX_ACCEPT - len(J) - 3)}", "b")],
    ids=["clauses", "characters"],
)
def test_an_accept_header_beyond_the_bound_is_refused(accept: str, longer: str) -> None:
    """Sixty thousand commas once took a quarter of a second for each request."""
    assert acceptable(accept) == (JSON,)
    with pytest.raises(StatusError, match="Accept") as error:
        acceptable(accept + longer)
    assert error.value.code == 400
