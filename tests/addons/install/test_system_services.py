"""The calls of systemctl, and the errors that they end with."""

from __future__ import annotations

from pathlib import Path

import pytest

from addons.install.system_services import ServiceError, Services


def systemctl(folder: Path, status: int = 0) -> str:
    program = folder / "systemctl"
    program.write_text(f'#!/bin/sh\necho "$@" >>{folder}/calls\necho "no such unit" >&2\nexit {status}\n')
    program.chmod(0o755)
    return str(program)


def test_each_step_is_a_call(tmp_path: Path) -> None:
    services = Services(systemctl(tmp_path))
    services.start_hub(has_sockets=True, opens_anew=True)
    services.start_hub(has_sockets=True)
    services.restart_clients()
    services.stop_hub(has_sockets=True)
    services.reload()
    assert (tmp_path / "calls").read_text().splitlines() == [
        "daemon-reload",
        "enable edgehub.socket edgehub.service",
        "stop edgehub.service",
        "restart edgehub.socket",
        "start --no-block edgehub.service",
        "daemon-reload",
        "enable edgehub.socket edgehub.service",
        "stop edgehub.service",
        "start --no-block edgehub.service",
        "restart kubelet.service",
        "is-active --quiet kube-proxy.service",
        "restart kube-proxy.service",
        "disable --now edgehub.socket edgehub.service",
        "daemon-reload",
    ]


def test_its_last_words_are_the_error(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="daemon-reload: no such unit"):
        Services(systemctl(tmp_path, 1)).reload()
    with pytest.raises(ServiceError, match="No such file"):
        Services(str(tmp_path / "nowhere")).reload()


def test_without_a_program_nothing_is_called() -> None:
    services = Services("")
    assert not services.can_be_called
    services.start_hub()
