"""Selectors match the same objects as in a real kube-apiserver, for generated objects and selectors."""

from __future__ import annotations

import random

import pytest

from kube.requests.selectors import parse_field_selector, parse_label_selector
from tests.cloud.real import RealCloud

KEYS = ("app", "tier", "example.com/zone", "n")
VALUES = ("", "a", "b", "3", "10")
SERVICES = "/api/v1/namespaces/{}/services"


@pytest.fixture
def labelled(real_cloud: RealCloud, namespace: str) -> dict[str, dict[str, str]]:
    """Create Services with random labels; return them by name."""
    chance = random.Random(7)
    made = {}
    for number in range(20):
        labels = {key: chance.choice(VALUES) for key in KEYS if chance.random() < 0.6}
        headless = {"clusterIP": "None"} if number % 3 == 0 else {}
        spec = {"ports": [{"port": 80}], **headless}
        name = f"s{number}"
        real_cloud.admin.post(
            SERVICES.format(namespace), {"metadata": {"name": name, "labels": labels}, "spec": spec}
        )
        made[name] = labels
    return made


def test_label_selectors_match_like_the_server(
    real_cloud: RealCloud, namespace: str, labelled: dict[str, dict[str, str]]
) -> None:
    chance = random.Random(11)
    operations = (
        "{k}={v}",
        "{k}=={v}",
        "{k}!={v}",
        "{k} in ({v},{w})",
        "{k} notin ({v},{w})",
        "{k}",
        "!{k}",
        "{k}>5",
        "{k}<5",
    )
    for _ in range(150):
        terms = [
            chance.choice(operations).format(
                k=chance.choice(KEYS), v=chance.choice(VALUES), w=chance.choice(VALUES)
            )
            for _ in range(chance.randint(1, 3))
        ]
        text = ",".join(terms)
        theirs = real_cloud.admin.request("GET", SERVICES.format(namespace), query={"labelSelector": text})
        if theirs.status == 400:
            with pytest.raises(ValueError, match=r".+"):
                parse_label_selector(text)
        else:
            selector = parse_label_selector(text)
            ours = {name for name, labels in labelled.items() if selector.matches(labels)}
            assert ours == {each["metadata"]["name"] for each in theirs.json()["items"]}, text


@pytest.mark.parametrize(
    "text",
    [
        "metadata.name=s1",
        "metadata.name!=s1",
        "spec.clusterIP=None",
        "spec.clusterIP!=None",
        "spec.type==ClusterIP",
    ],
)
def test_field_selectors_match_like_the_server(
    real_cloud: RealCloud, namespace: str, labelled: dict[str, dict[str, str]], text: str
) -> None:
    def chosen(cloud: RealCloud, **query: str) -> set[str]:
        return {
            each["metadata"]["name"] for each in cloud.admin.get(SERVICES.format(namespace), **query)["items"]
        }

    objects = real_cloud.admin.get(SERVICES.format(namespace))["items"]
    selector = parse_field_selector(text)

    def choose(document: dict[str, dict[str, str]]) -> bool:
        def value(path: str) -> str:
            section, _, name = path.partition(".")
            return document[section][name]

        return selector.matches(value)

    ours = {each["metadata"]["name"] for each in objects if choose(each)}
    assert ours == chosen(real_cloud, fieldSelector=text)
    assert len(labelled) == len(objects)
