"""A starting hub replaces no name of mitmproxy or of its HTTP libraries."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cloud.ports import free_port

PROGRAM = '''
import asyncio, importlib, json, sys

sys.path.insert(0, {root!r})
LIBRARIES = ("mitmproxy", "h2", "hpack", "h11")


def loaded():
    return [name for name in sys.modules if name.partition(".")[0] in LIBRARIES]


def names():
    """The value of each name of a module, and of each class that is defined there."""
    found = {{}}
    for module in loaded():
        for name, value in list(vars(sys.modules[module]).items()):
            found[module, name] = value
            if isinstance(value, type) and value.__module__ == module:
                found |= {{(f"{{module}}.{{name}}", each): part for each, part in vars(value).items()}}
    return found


for module in json.loads({modules!r}):
    importlib.import_module(module)
before = names()


async def start():
    from mitmproxy.options import Options
    from addons import hub
    from addons.proxy.listeners import closed
    from addons.options import Options as Own
    from addons.proxy.listener_mode import listener_specs

    if {alone!r}:
        from addons.proxy.master import HubMaster

        master = HubMaster(Options(), hub.addon)
    else:
        from mitmproxy.tools.dump import DumpMaster

        master = DumpMaster(Options(), with_termlog=False)
        master.addons.add(*hub.addons)
    master.options.update(**json.loads({options!r}))
    running = asyncio.create_task(master.run())
    own = next(part for part in hub.addon.parts if isinstance(part, Own))
    modes = listener_specs(own.settings)
    while closed(modes):
        await asyncio.sleep(0.01)
    after = names()
    changed = [".".join(name) for name, value in before.items() if after.get(name) is not value]
    added = [".".join(name) for name, value in after.items() if name not in before]
    master.shutdown()
    await running
    with open({told!r}, "w") as file:
        json.dump([loaded(), changed, added], file)


asyncio.run(start())
'''


@pytest.mark.parametrize("is_alone", [True, False], ids=["alone", "beside mitmdump"])
def test_a_start_replaces_no_name(tmp_path: Path, is_alone: bool) -> None:
    def started(folder: Path, *, is_alone: bool, modules: list[str]) -> tuple[list[str], set[str], set[str]]:
        """Return the library modules that a started hub has loaded, and the names that it changed or added in them."""
        options = {
            "server": False,
            "hub_server": "https://127.0.0.1:1",
            "hub_node": "n1",
            "hub_state_dir": str(folder),
            **{f"hub_{name}": free_port() for name in ("port", "tls_port", "admin_port")},
            "hub_peer_port": 0,
        }
        root, listing = str(Path(__file__).parents[3]), folder / "names"
        program = PROGRAM.format(
            root=root,
            modules=json.dumps(modules),
            options=json.dumps(options),
            alone=is_alone,
            told=str(listing),
        )
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr
        found, changed, added = json.loads(listing.read_text())
        return found, set(changed), set(added)

    # Names that every master of mitmproxy sets.
    documented = {"mitmproxy.ctx.master", "mitmproxy.ctx.options", "mitmproxy.ctx.log"}
    modules, _, _ = started(tmp_path, is_alone=is_alone, modules=[])
    found, changed, added = started(tmp_path, is_alone=is_alone, modules=modules)
    assert set(modules) == set(found)
    assert changed <= documented
    assert added <= documented
