"""The addon list: no hook is misspelt, and entries that depend on each other are in order."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from mitmproxy import hooks, http
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.proxy.mode_specs import ProxyMode
from mitmproxy.test import taddons, tflow, tutils

from addons import hub
from addons.assembly import Assembly
from addons.connections import Connections
from addons.console import Console
from addons.egress import Egress
from addons.hub import addon
from addons.identity import Identity
from addons.inputs.filter_inputs import FilterInputs
from addons.link.health import Cloud, ServerHealth
from addons.link.link import UpstreamManager
from addons.link.servers import parse_server
from addons.memory import Memory
from addons.options import Options
from addons.proxy.own_listeners import OwnListeners
from addons.requests.caller import CredentialSource
from addons.requests.request_context import context_of
from addons.resolve import Resolve
from addons.router import Router, RouterParts
from addons.rules.in_force import RulesInForce
from addons.rules.table import parse_rules
from addons.server.filtered_get import FilteredGets
from addons.server.flow_hooks import HOOKS
from addons.server.limits.open_connections import OpenConnections
from addons.settings import Settings, parse_settings
from addons.traffic import Traffic
from addons.ui.attached.attachments import Attachments
from addons.ui.hub_records import Records
from kube.http.kubeconfig import NO_CREDENTIALS
from tests.addons.support.hub_of import assembly, hub_of
from tests.addons.support.routed import ANSWERERS

ORDERED = hub.order()
PARTS: list[Any] = [part for part, _, _ in ORDERED]

WIRING = {
    OwnListeners: {"closed", "open"},
    Options: {"as_typed"},
    Connections: set(),
    Attachments: {"attach", "detach", "ended", "holds_of", "may_hold", "start", "visible"},
    Console: {"start", "web_address"},
    Resolve: {"allow"},
    Identity: {"serve_peers", "serve_with"},
    Router: {"start", "rules_changed", "restored"},
    Egress: {"relay", "start"},
    Traffic: set(),
    Memory: set(),
    Assembly: set[str](),
}
"""Public methods for the hub's other parts, by addon. mitmproxy calls none of them."""


def public_methods(addon: object) -> set[str]:
    return {
        name
        for name in dir(type(addon))
        if not name.startswith("_") and inspect.isroutine(getattr(type(addon), name))
    }


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_every_public_method_is_a_hook_or_wiring(part: object) -> None:
    """mitmproxy ignores a misspelt hook without a message."""
    assert public_methods(part) - set(hooks.all_hooks) == WIRING[type(part)]


def test_mitmproxy_has_one_addon() -> None:
    assert hub.addons == [addon]


def test_no_wiring_is_named_like_a_hook() -> None:
    not_hooks = {
        *{"attach", "detach", "ended", "holds_of", "may_hold", "visible"},
        *{"web_address", "as_typed", "allow", "serve_peers", "serve_with"},
        *{"start", "rules_changed", "restored", "relay"},
        *{"closed", "open"},
    }
    assert set[str]().union(*WIRING.values()) == not_hooks
    assert not_hooks.isdisjoint(hooks.all_hooks)


def test_the_module_has_no_callable_named_like_a_hook() -> None:
    """mitmproxy treats the script as an addon too, and calls any callable in it that is named like a hook."""
    assert {name for name in vars(hub) if name in hooks.all_hooks} == set()


def test_each_addon_declares_a_distinct_name() -> None:
    names = [vars(type(part))["name"] for part in PARTS]
    assert len(set(names)) == len(names)
    assert all(name.startswith("edgehub-") for name in names)


def test_importing_the_module_builds_no_part() -> None:
    """It only creates the addon, which builds the parts when mitmproxy loads it."""
    body = ast.parse(Path(hub.__file__).read_text()).body
    assert {type(statement) for statement in body} == {ast.Expr, ast.ImportFrom, ast.FunctionDef, ast.Assign}
    made = [ast.unparse(each.value) for each in body if isinstance(each, ast.Assign)]
    assert [each.partition("(")[0] for each in made] == ["HubAddon", "[addon]"]
    assert addon.parts == ()


def test_each_hook_has_the_parameters_of_mitmproxy() -> None:
    for part in PARTS:
        for name in public_methods(part) & set(hooks.all_hooks):
            given = len(inspect.signature(hooks.all_hooks[name]).parameters)
            signature = inspect.signature(getattr(part, name))
            signature.bind(*range(given))
            assert len(signature.parameters) == given, f"{type(part).__name__}.{name}"


# -- the order -----------------------------------------------------------------------------------------------------

ORDER = [type(part) for part in PARTS]
DEPENDENT = [(type(before), type(part)) for part, needed, _ in ORDERED for before in needed]
SPEC = "hub:plain@10261"


class Known:
    """A stand-in for parts that a relay does not use."""

    def __init__(self) -> None:
        self.rules = parse_rules(None)
        self.address = ("127.0.0.1", 2)
        self.is_up = True

    async def wait_known(self, _wait: float) -> None:
        return


@pytest.fixture
def chain() -> Iterator[dict[type, Any]]:
    """Build a chain, started as by Lifecycle but without probes and files; return its parts by type."""
    options, resolve = Options(), Resolve()
    opened = OpenConnections(1_000)
    options.settings = hub_settings()
    cloud = Cloud([ServerHealth(parse_server("https://cloud:6443"))], "priority")
    link = UpstreamManager(cloud, NO_CREDENTIALS)
    egress = Egress(opened)
    egress.start(link)
    identity, router = Identity(options), Router(egress.relay)
    known: Any = Known()
    rules, inputs = _as(RulesInForce, known), _as(FilterInputs, known)
    router.start(RouterParts(ANSWERERS, FilteredGets(rules, inputs, 1.0), lambda _: True))
    chained = (options, Connections(opened), resolve, identity, router, egress, Traffic(Records()))
    yield {type(each): each for each in chained}
    link.close()


def hub_settings() -> Settings:
    return parse_settings({"server": "https://cloud:6443"})


def _as(_type: type, value: Any) -> Any:
    return value


async def send(chain: dict[type, Any], order: list[type]) -> http.HTTPFlow:
    """Send a request of kubectl from this node through the chain in this order."""
    headers = http.Headers([(b"User-Agent", b"kubectl/v1")])
    flow = tflow.tflow(req=tutils.treq(path=b"/api/v1/pods", headers=headers, content=b""))
    flow.client_conn.proxy_mode = ProxyMode.parse(SPEC)
    await run(chain, [kind for kind in order if kind in chain], HOOKS["requestheaders"](flow))
    return flow


async def run(chain: dict[type, Any], order: Sequence[type], hook: hooks.Hook) -> None:
    """Call a hook of these parts of the chain as mitmproxy does."""
    with taddons.context() as context:
        await context.master.addons.invoke_addon(hub_of(*(chain[kind] for kind in order)), hook)


async def test_the_chain_in_its_order_relays_a_request_to_the_cloud(chain: dict[type, Any]) -> None:
    flow = await send(chain, ORDER)
    assert flow.response is None
    assert (str(flow.request.host), flow.request.port, flow.request.scheme) == ("cloud", 6443, "https")
    context = context_of(flow)
    assert context is not None
    assert context.caller.credential_source is CredentialSource.HUB


def test_each_position_in_the_order_of_parts_has_a_distinct_reason() -> None:
    reasons = [reason for _, _, reason in ORDERED]
    assert all(re.fullmatch(r"[a-z].{30,}[^.]", reason) for reason in reasons)
    assert len(set(reasons)) == len(reasons)


def test_each_addon_comes_after_those_it_requires() -> None:
    for at, (_, needed, _) in enumerate(ORDERED):
        assert all(PARTS.index(each) < at for each in needed)


@pytest.mark.parametrize(("one", "other"), DEPENDENT, ids=lambda kind: kind.name)
async def test_swapping_two_dependent_parts_fails_closed(
    one: type, other: type, chain: dict[type, Any]
) -> None:
    def swapped(one: type, other: type) -> list[type]:
        at = {one: other, other: one}
        return [at.get(kind, kind) for kind in ORDER]

    order = swapped(one, other)
    if (one, other) in BREAKS:
        await BREAKS[one, other](chain, order)
        return
    flow = await send(chain, order)
    assert flow.response is not None
    assert flow.response.status_code == 500
    assert str(flow.request.host) != "cloud"


def test_each_listed_effect_is_of_two_dependent_parts() -> None:
    assert set(BREAKS) <= set(DEPENDENT)


async def send_list(chain: dict[type, Any], order: list[type]) -> http.HTTPFlow:
    """Send a list of a cached component up to the router."""
    headers = http.Headers([(b"User-Agent", b"kubelet/v1")])
    target = b"/api/v1/nodes?resourceVersion=0"
    flow = tflow.tflow(req=tutils.treq(path=target, headers=headers, content=b""))
    flow.client_conn.proxy_mode = ProxyMode.parse(SPEC)
    await run(
        chain, [kind for kind in order if kind in (Resolve, Identity, Router)], HOOKS["requestheaders"](flow)
    )
    return flow


async def counts_nothing_of_a_relay(chain: dict[type, Any], order: list[type]) -> None:
    """Traffic before egress counts in a stream function that egress then replaces."""
    counted = []
    for path in (ORDER, order):
        flow = await send(chain, ORDER)
        flow.response = tutils.tresp()
        order_of_these = [kind for kind in path if kind in (Router, Egress, Traffic)]
        await run(chain, order_of_these, HOOKS["responseheaders"](flow))
        before = chain[Traffic].counts.sent()
        assert callable(flow.response.stream)
        flow.response.stream(b"abc")
        counted.append(chain[Traffic].counts.sent() - before)
    assert counted == [3, 0]


async def takes_everybody_for_a_stranger(chain: dict[type, Any], order: list[type]) -> None:
    """A router before identity routes an anonymous caller: no component of this node gets a view."""
    for path in (ORDER, order):
        context = context_of(await send_list(chain, path))
        views = context is not None and context.route is not None and context.route.kind == "view"
        assert views is (path is ORDER)


async def hands_on_old_settings(_chain: dict[type, Any], order: list[type]) -> None:
    """A lifecycle before options publishes the hub's former address."""
    assert await moved_to(ORDER) == ("169.254.2.9",)
    assert await moved_to(order) == ("169.254.2.1",)


async def moved_to(order: list[type]) -> tuple[str, ...]:
    """Return the pod address that open watches get when it is set in the interface."""
    moved: list[tuple[str, ...]] = []
    options = Options()
    lifecycle = assembly(options)
    made = {Options: options, Assembly: lifecycle}
    chained = hub_of(*(made[kind] for kind in order if kind in made))
    with taddons.context(Proxyserver(), chained) as context:
        context.options.update(hub_server="https://cloud:6443", hub_pod_address="169.254.2.1")
        lifecycle._moved.append(lambda: moved.append(options.settings.pod_addresses))
        context.options.update(hub_pod_address="169.254.2.9")
    return moved[0]


BREAKS: dict[tuple[type, type], Callable[[dict[type, Any], list[type]], Awaitable[None]]] = {
    (Egress, Traffic): counts_nothing_of_a_relay,
    (Identity, Router): takes_everybody_for_a_stranger,
    (Options, Assembly): hands_on_old_settings,
}
"""The effect of a swap, if it is not that every request fails."""


def test_options_are_set_first_and_the_lifecycle_starts_last() -> None:
    """Options must have parsed the settings before others are configured; Lifecycle starts the parts that were loaded
    before it."""
    assert ORDER[:2] == [OwnListeners, Options], "no part reads an option of mitmproxy's before"
    assert ORDER[-1] is Assembly
    assert {kind for kind in ORDER if hasattr(kind, "running")} == {
        OwnListeners,
        Options,
        Connections,
        Memory,
        Assembly,
    }
