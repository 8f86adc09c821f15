"""serviceenvupdater: the environment variables that hold the API server's address point at the hub."""

from __future__ import annotations

from typing import Any

import pytest

from addons.filters.builtin.serviceenvupdater import HOST, MAX_VARIABLES, PORT, ServiceEnvUpdater
from addons.filters.inputs import HubAddress
from kube.wire.api_objects import ApiObject
from kube.wire.encoding import Encoding
from tests.addons.filters.support.checks import Case, apply, named, reasons_of
from tests.addons.filters.support.samples import Sample, World, metadata

Env = dict[str, str]


def pod(*containers: Env, init: Env | None = None) -> Sample:
    def container(name: str, env: Env) -> dict[str, Any]:
        return {"name": name, "env": [{"name": key, "value": value} for key, value in env.items()]}

    spec: dict[str, Any] = {"nodeName": "n1"}
    if containers:
        spec["containers"] = [container(f"c{number}", env) for number, env in enumerate(containers)]
    if init is not None:
        spec["initContainers"] = [container("init", init)]
    return Sample("v1", "Pod", {"metadata": metadata("agent", "default"), "spec": spec})


CLOUD = {HOST: "10.96.0.1", PORT: "443"}
HUB = {HOST: "169.254.2.1", PORT: "10268"}

CASES = [
    Case("both variables", pod(CLOUD), "changed", "hub-address"),
    Case("one variable", pod({HOST: "10.96.0.1"}), "changed", "hub-address"),
    Case("points at the hub already", pod(HUB), "kept", "hub-address"),
    Case("neither variable", pod({"A": "1"}), "kept", "no-service-env"),
    Case("no container", pod(), "kept", "no-service-env"),
    Case("only in an init container", pod({"A": "1"}, init=CLOUD), "kept", "no-service-env"),
    Case("the hub has no address", pod(CLOUD), "kept", "no-hub-address", World(hub=HubAddress((), 10268))),
    Case("many variables", pod(*[CLOUD] * (MAX_VARIABLES // 2 + 1)), "kept", "too-many-variables"),
    Case("many containers", pod(*[{"A": ""}] * (MAX_VARIABLES + 1)), "kept", "too-many-variables"),
]


@pytest.mark.parametrize("case", named(CASES))
def test_only_pods_that_name_the_api_server_are_changed(encoding: Encoding, case: Case) -> None:
    case.check(ServiceEnvUpdater(), encoding)


def test_the_cases_cover_every_reason() -> None:
    assert reasons_of(CASES) == ServiceEnvUpdater.reasons


def test_existing_variables_get_the_hubs_address_and_none_is_added(encoding: Encoding) -> None:
    def env_of(obj: ApiObject, kind: str = "containers") -> list[Env]:
        containers = obj.fields.child("spec").children(kind)
        return [
            {v.text("name"): v.text("value") for v in container.children("env")} for container in containers
        ]

    sample = pod({"A": "1"} | CLOUD | {"B": "2"}, {PORT: "443"}, {"C": "3"}, init=CLOUD)
    changed = apply(ServiceEnvUpdater(), sample, World(), encoding).obj
    assert env_of(changed) == [{"A": "1"} | HUB | {"B": "2"}, {PORT: "10268"}, {"C": "3"}]
    assert env_of(changed, "initContainers") == [CLOUD]


def test_the_note_names_the_changed_variables(encoding: Encoding) -> None:
    notes = apply(ServiceEnvUpdater(), pod(CLOUD), World(), encoding).notes
    assert notes == [("pod default/agent", "changed", f"{HOST}, {PORT} point at 169.254.2.1 port 10268")]
