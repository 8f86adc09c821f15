"""Which kubeconfig `edgehub fleet` takes, and what it says where it cannot ask."""

from __future__ import annotations

from pathlib import Path

import pytest

from addons.install.fleet_command import fleet_text, kubeconfigs
from tests.cloud.ports import free_port


@pytest.mark.parametrize(
    ("given", "environment", "paths"),
    [
        ("/a", {"KUBECONFIG": "/b"}, ["/a"]),
        (None, {"KUBECONFIG": "/b:/c"}, ["/b", "/c"]),
        (None, {"HOME": "/person"}, ["/person/.kube/config"]),
    ],
)
def test_it_is_the_one_that_kubectl_takes(
    given: str | None, environment: dict[str, str], paths: list[str]
) -> None:
    assert [str(each) for each in kubeconfigs(Path(given) if given else None, environment)] == paths


def test_a_cloud_that_does_not_answer_is_named(tmp_path: Path) -> None:
    server = f"http://127.0.0.1:{free_port()}"
    file = tmp_path / "config"
    file.write_text(
        f"""\
clusters: [{{name: a, cluster: {{server: "{server}"}}}}]
contexts: [{{name: a, context: {{cluster: a, user: a}}}}]
users: [{{name: a, user: {{}}}}]
current-context: a
"""
    )
    with pytest.raises(ValueError, match=server):
        fleet_text(file, "", as_json=False)
