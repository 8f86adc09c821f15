"""What an installation is asked for, and the files that follow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from addons.install.changes import Ledger
from addons.install.kubeconfigs import server_of
from addons.install.wish import (
    LEDGER,
    OWN_KUBECONFIG,
    STATIC_POD,
    UNIT,
    HubFlags,
    Wish,
    parse_hub_flags,
    read_wish,
)
from tests.cloud.kubeconfig import write_kubeconfig

KUBELET = "/etc/kubernetes/kubelet.conf"
WISH = Wish("n1", "systemd", "/usr/bin/edgehub", "edgehub:1", ("--port", "1"), KUBELET, KUBELET, ())


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    (tmp_path / "etc/kubernetes").mkdir(parents=True)
    write_kubeconfig(tmp_path / KUBELET[1:], "https://cloud:6443")
    return Ledger(tmp_path, LEDGER)


def test_the_hub_has_a_copy_and_kubelet_leads_to_the_hub(ledger: Ledger) -> None:
    own, unit = WISH.hub_changes(ledger)
    assert (own.path, own.mode, unit.path) == (OWN_KUBECONFIG, 0o600, UNIT)
    assert server_of(own.data.decode()) == "https://cloud:6443"
    assert (
        b"ExecStart=/usr/bin/edgehub --kubeconfig /etc/kubernetes/edgehub.conf --node n1 --port 1\n"
        in unit.data
    )
    (kubelet,) = WISH.client_changes(ledger)
    assert server_of(kubelet.data.decode()) == "http://127.0.0.1:1"
    ledger.apply([own, unit, kubelet])
    assert WISH.hub_changes(ledger) == [own, unit], "of the original, not of what it became"


def test_a_static_pod_is_laid_where_kubelet_looks(ledger: Ledger) -> None:
    wish = read_wish({**json.loads(json.dumps(WISH.to_json())), "method": "static-pod"})
    _, pod = wish.hub_changes(ledger)
    assert pod.path == STATIC_POD
    assert json.loads(pod.data)["spec"]["containers"][0]["image"] == "edgehub:1"


def test_a_wish_is_read_as_it_was_kept() -> None:
    assert read_wish(json.loads(json.dumps(WISH.to_json()))) == WISH


def test_a_kubeconfig_that_leads_to_the_hub_is_no_identity(tmp_path: Path, ledger: Ledger) -> None:
    write_kubeconfig(tmp_path / KUBELET[1:], "http://127.0.0.1:1")
    with pytest.raises(ValueError, match="leads to a hub already"):
        WISH.hub_changes(ledger)


def test_a_node_without_a_kubelet_is_told(tmp_path: Path, ledger: Ledger) -> None:
    (tmp_path / KUBELET[1:]).unlink()
    with pytest.raises(ValueError, match=f"{KUBELET} is not there"):
        WISH.client_changes(ledger)


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        ([], HubFlags()),
        (["--listen", "::1", "--admin-port=3", "--ui", "none"], HubFlags(listen="::1", admin_port=3)),
    ],
)
def test_flags_of_the_hub_are_understood_where_they_matter(flags: list[str], found: HubFlags) -> None:
    assert parse_hub_flags(flags) == found


def test_urls_and_ports() -> None:
    hub = HubFlags(listen="::1", tls_port=0)
    assert (hub.plain_url, hub.admin_url) == ("http://[::1]:10261", "http://[::1]:10267")
    assert hub.ports == {"--port": 10261, "--tls-port": 0, "--admin-port": 10267}


def test_a_port_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="after --"):
        parse_hub_flags(["--port", "many"])
