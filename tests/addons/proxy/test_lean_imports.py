"""What the program imports, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

BEGIN = "import sys; from addons.proxy.lean_imports import skip_default_addons as skip; "
UNUSED = ("flask", "ldap3", "passlib", "urwid", "tornado", "mitmproxy.addons.onboarding")


def imported(program: str) -> set[str]:
    said = subprocess.run(
        [sys.executable, "-c", f"{BEGIN}{program}; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(said.stdout.split())


def test_the_hub_imports_no_addon_of_mitmproxys_that_it_does_not_use() -> None:
    found = imported("skip(); from addons import hub; from addons.proxy import master")
    assert {"mitmproxy.addons.proxyserver", "mitmproxy.addons.next_layer"} <= found
    assert found.isdisjoint(UNUSED)


def test_mitmproxys_package_still_imports_them_all() -> None:
    """When this fails, `skip_default_addons` is needed no longer."""
    assert {"flask", "mitmproxy.addons.onboarding"} <= imported("import mitmproxy.addons")


def test_who_has_the_package_keeps_it() -> None:
    found = imported("import mitmproxy.addons; skip(); mitmproxy.addons.default_addons")
    assert "flask" in found
