"""The Job that pulls images: its name, its permissions, and when it counts as successful."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controllers.cluster.jobs import LONGEST_NAME, job_name
from controllers.cluster.kinds import DaemonPod, Pod
from controllers.updates.daemon_sets import DaemonSet
from controllers.updates.image_puller import PREFIX, asked_revision, has_all_images, image_job
from kube.json_type import Json

MESSAGE = "controllerrevision: h2"
ASKING = DaemonPod(
    *("u", "web", "set-1"), need_upgrade=("True", "", MESSAGE), image_ready=("False", "", MESSAGE)
)


def test_names_fit_into_a_label_and_differ() -> None:
    assert job_name(PREFIX, "web-x2x4z", "5d8f9c") == "image-pre-pull-web-x2x4z-5d8f9c"
    long, other = (job_name(PREFIX, "a" * 60 + end, "5d8f9c") for end in ("-x", "-y"))
    assert len(long) == len(other) == LONGEST_NAME
    assert long != other
    assert long.endswith("-5d8f9c")


@pytest.mark.parametrize(
    ("pod", "revision"),
    [
        (ASKING, "h2"),
        (replace(ASKING, deleting=True), ""),
        (replace(ASKING, need_upgrade=("False", "", MESSAGE)), ""),
        (replace(ASKING, image_ready=("True", "PullImageSuccess", MESSAGE)), ""),
        (replace(ASKING, image_ready=("False", "", "controllerrevision: h1")), ""),
        (replace(ASKING, image_ready=("False", "PullImageFail", "pull image job j failed")), ""),
        (replace(ASKING, image_ready=("", "", "")), ""),
    ],
    ids=["asked", "going", "newest", "pulled", "former", "failed", "not asked"],
)
def test_images_of_a_requested_revision_are_pulled(pod: DaemonPod, revision: str) -> None:
    assert asked_revision(pod) == revision


def test_the_job_pulls_each_image_of_the_template_onto_the_pods_node() -> None:
    daemon_set = DaemonSet(
        *("shop", "web", "set-1"), images=(("main", "web:2"), ("first", "init:1")), pull_secrets=("registry",)
    )
    job = image_job("j", Pod("shop", "web-1", "n1"), "u", daemon_set)
    pod = job["spec"]["template"]["spec"]
    assert pod["nodeName"] == "n1"
    assert [(each["image"], each["command"]) for each in pod["containers"]] == [
        ("web:2", ["true"]),
        ("init:1", ["true"]),
    ]
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert job["metadata"]["ownerReferences"][0]["uid"] == "u"


@pytest.mark.parametrize(
    ("statuses", "are_there"),
    [
        ([{"imageID": "sha256:1"}, {"imageID": "sha256:2"}], True),
        ([{"imageID": "sha256:1"}, {"imageID": ""}], False),
        ([{"imageID": "sha256:1"}], False),
        ([], False),
    ],
)
def test_an_image_without_the_program_counts_as_pulled(statuses: list[Json], are_there: bool) -> None:
    spec = {"containers": [{"name": "pull-0"}, {"name": "pull-1"}]}
    assert has_all_images({"spec": spec, "status": {"containerStatuses": statuses}}) is are_there
