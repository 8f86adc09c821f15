"""The settings of a pool for its hubs, read from its annotations."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from controllers.nodes.pool_progress import progress
from controllers.nodes.waves import Waves, image_of, read_waves


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("edgehub:0.2.0", "edgehub:0.3.0"),
        ("edgehub", "edgehub:0.3.0"),
        ("r.example:5000/a/edgehub:0.2.0", "r.example:5000/a/edgehub:0.3.0"),
        ("r.example:5000/a/edgehub", "r.example:5000/a/edgehub:0.3.0"),
        ("r.example/edgehub@sha256:00", "r.example/edgehub:0.3.0"),
        ("r.example/edgehub:0.2.0@sha256:00", "r.example/edgehub:0.3.0"),
    ],
)
def test_the_image_of_a_version_is_derived_from_the_managers(image: str, expected: str) -> None:
    assert image_of(image, "0.3.0") == expected
    assert image_of(image, "") == image


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, Waves()),
        (
            {
                "edgehub.io/max-unavailable": "20%",
                "edgehub.io/wave-pause": "10m",
                "edgehub.io/ready-timeout": "90s",
            },
            Waves("20%", timedelta(minutes=10), timedelta(seconds=90)),
        ),
        ({"edgehub.io/wave-pause": "-1s"}, Waves()),
        ({"edgehub.io/hub-version": "0.3.0-rc.1"}, Waves(version="0.3.0-rc.1")),
    ],
)
def test_annotations_of_waves_are_parsed(annotations: dict[str, str], expected: Waves) -> None:
    assert read_waves(annotations) == expected


@pytest.mark.parametrize(
    "annotations",
    [
        {"edgehub.io/max-unavailable": "all"},
        {"edgehub.io/max-unavailable": "9999999"},
        {"edgehub.io/max-unavailable": "0"},
        {"edgehub.io/max-unavailable": "00%"},
        {"edgehub.io/wave-pause": "1d"},
        {"edgehub.io/ready-timeout": ""},
        {"edgehub.io/hub-version": "evil.example/hub:1"},
        {"edgehub.io/hub-version": "../../tmp"},
        {"edgehub.io/hub-version": "1 2"},
    ],
)
def test_invalid_annotations_of_waves_are_reported(annotations: dict[str, str]) -> None:
    found = read_waves(annotations)
    assert next(iter(annotations)) in found.error
    assert progress([], found).reason == "InvalidAnnotation"


def test_an_annotation_that_cannot_be_followed_leaves_the_others_in_force() -> None:
    """Or a node that failed at a version would be tried again, and one that is under way would fail too soon."""
    found = read_waves(
        {
            "edgehub.io/max-unavailable": "2O%",
            "edgehub.io/wave-pause": "1d",
            "edgehub.io/ready-timeout": "30m",
            "edgehub.io/hub-version": "0.3.0",
        }
    )
    assert replace(found, error="") == Waves(ready_timeout=timedelta(minutes=30), version="0.3.0")
    assert "max-unavailable" in found.error
    assert "wave-pause" in found.error
