"""Merge keys by kind; tests/kube/objects/test_status_update_real.py compares what they do with a kube-apiserver."""

from __future__ import annotations

import pytest

from kube.objects.merge_keys import merge_keys_of


@pytest.mark.parametrize(
    ("kind", "path", "key"),
    [
        ("Node", "status.conditions", "type"),
        ("Node", "status.addresses", "type"),
        ("Pod", "status.conditions", "type"),
        ("Pod", "status.hostIPs", "ip"),
        ("Pod", "status.podIPs", "ip"),
        ("Pod", "status.resourceClaimStatuses", "name"),
        ("Lease", "metadata.ownerReferences", "uid"),
        ("Pod", "metadata.finalizers", ""),
    ],
)
def test_lists_that_are_merged(kind: str, path: str, key: str) -> None:
    assert merge_keys_of(kind)[path] == key
