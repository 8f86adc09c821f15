"""The program's imports, measured in a separate process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from addons.startup.lean_imports import FORBIDDEN, LAZY_MODULES

BEGIN = "import sys; from addons.startup.lean_imports import leave_out_unused as leave_out; "


def output_of(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    ).stdout


def imported(program: str) -> set[str]:
    return set(output_of(f"import sys; {program}; print(*sys.modules)").split())


def test_the_program_imports_nothing_that_it_does_not_use() -> None:
    # Everything that the program does before its loop runs.
    program = (
        "import asyncio, sys; from addons import command; asyncio.run = lambda coroutine: coroutine.close(); "
        "command.main(['--server', 'https://cloud:6443', '--node', 'n1'])"
    )
    found = imported(program)
    assert "mitmproxy.proxy.mode_servers" in found
    unused = {
        "aiohttp",
        "aioquic.quic.connection",
        "flask",
        "google.protobuf.internal.decoder",
        "google.protobuf.text_format",
        "html.entities",
        "ldap3",
        "mitmproxy.addons",
        "mitmproxy.command",
        "mitmproxy.contentviews",
        "mitmproxy.master",
        "mitmproxy.tools",
        "mitmproxy_rs.mitmproxy_rs",
        "passlib",
        "profile",
        "pyparsing",
        "ruamel.yaml.main",
        "tornado",
        "urwid",
        "wsgiref",
    }
    assert found.isdisjoint({*unused, "addons.ui.admin"}), "nobody has asked the admin port"
    assert imported(f"{program}; import addons.ui.admin").isdisjoint(unused)


@pytest.mark.parametrize(
    ("importing", "unused"),
    [
        ("mitmproxy.optmanager", "ruamel.yaml.main"),
        ("mitmproxy.proxy.layers", "aioquic.quic.connection"),
        ("google.protobuf.descriptor_pb2", "google.protobuf.text_format"),
        ("prometheus_client.metrics", "prometheus_client.exposition"),
        ("mitmproxy.proxy.layers", "html.entities"),
        ("diskcache", "pickletools"),
        ("addons.ui.debug_pages", "profile"),
        ("addons.ui.reports.support", "tarfile"),
    ],
)
def test_modules_left_out_by_the_hub_are_still_imported_by_their_libraries(
    importing: str, unused: str
) -> None:
    """If this fails, the hub need not leave out the module any longer."""
    assert unused in imported(f"import {importing}")


def test_an_imported_module_is_not_left_out() -> None:
    everything = ", ".join((*LAZY_MODULES, *FORBIDDEN))
    same = f"{BEGIN}import {everything}; before = dict(sys.modules); leave_out(); print(before == dict(sys.modules))"
    assert output_of(same).strip() == "True"


@pytest.mark.parametrize(
    "use",
    [
        "import ruamel.yaml; ruamel.yaml.YAML(typ='safe', pure=True).load('a: 1')",
        "import ruamel.yaml; ruamel.yaml.comments.CommentedMap()",
        "from google.protobuf.internal import python_message; python_message.GeneratedProtocolMessageType",
        "import mitmproxy.io; mitmproxy.io.FlowReader",
        "import cProfile, pstats; profile = cProfile.Profile(); profile.runcall(str); pstats.Stats(profile)",
        "import html; html.unescape(html.escape('<'))",
        "import pickle, pickletools; pickletools.optimize(pickle.dumps(1))",
        "import io, tarfile; tarfile.open(fileobj=io.BytesIO(), mode='w').close()",
    ],
)
def test_a_module_left_out_is_imported_on_later_use(use: str) -> None:
    assert output_of(f"{BEGIN}leave_out(); {use}") == "", "and nothing is raised"


def test_a_missing_name_of_a_package_is_an_attribute_error() -> None:
    asked = "; ".join(f"print(hasattr(mitmproxy.io, '{name}'))" for name in ("nonsense", "__nonsense__"))
    assert output_of(f"{BEGIN}leave_out(); import mitmproxy.io; {asked}").split() == ["False", "False"]


def test_a_left_out_class_cannot_be_instantiated() -> None:
    use = (
        "from mitmproxy.proxy.layers import ClientQuicLayer; print(isinstance(1, ClientQuicLayer)); "
        "\ntry: ClientQuicLayer()"
        "\nexcept RuntimeError as error: print(error)"
    )
    assert output_of(f"{BEGIN}leave_out(); {use}").splitlines() == [
        "False",
        "mitmproxy.proxy.layers.quic.ClientQuicLayer is left out of a hub without an interface",
    ]


def test_a_listener_closes_without_the_modules_left_out() -> None:
    """mitmproxy reads the listener's addresses, and checks whether it is a server of mitmproxy_rs."""
    program = (
        f"{BEGIN}leave_out(); import mitmproxy_rs\n"
        "print(isinstance(object(), (mitmproxy_rs.udp.UdpServer, mitmproxy_rs.wireguard.WireGuardServer)))"
    )
    assert output_of(program) == "False\n"


def test_edgehub_attach_works_with_a_hub_that_left_modules_out() -> None:
    """The filter of retained flows needs pyparsing, which needs the HTML entities."""
    found = imported(f"{BEGIN}leave_out(); import addons.ui.attached.flow_feed")
    assert {"pyparsing", "html.entities"} <= found
