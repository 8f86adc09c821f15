"""The rules in force: unknown at first, then as the ConfigMap says, at each of its edits."""

from __future__ import annotations

import asyncio

import pytest

from addons.filters.chain import FILTERS
from addons.rules import in_force
from addons.rules.in_force import RulesInForce
from addons.rules.table import Problem, Rules
from addons.telemetry import metrics
from kube.errors import StatusError
from tests.addons.support.hand_source import HandSource
from tests.addons.support.observed import value_of
from tests.addons.support.samples import config_map, fill, raw

GETTER = {"filter_servicetopology": "getter/endpointslices#get"}


class Told:
    """Remembers each time that the rules changed, and each problem that was reported."""

    def __init__(self) -> None:
        self.seen: list[Rules] = []
        self.problems: list[Problem] = []


def follow(source: HandSource, disabled: frozenset[str] = frozenset()) -> tuple[RulesInForce, Told]:
    told = Told()

    def why() -> str:
        return str(source.reflector.error or "the cloud has not answered yet")

    rules = RulesInForce(FILTERS, disabled, lambda problem, _uid: told.problems.append(problem))
    rules.listen(lambda: told.seen.append(rules.rules))
    rules.follow(source.store, why)
    return rules, told


def binds(rules: Rules, component: str = "getter", verb: str = "get") -> bool:
    return bool(rules.chain(component, "discovery.k8s.io", "endpointslices", verb))


async def test_until_the_cloud_has_answered_nothing_is_known() -> None:
    source = HandSource()
    rules, _ = follow(source)
    assert not rules.is_known
    with pytest.raises(StatusError) as caught:
        await rules.wait_known(0.01)
    assert (caught.value.code, caught.value.retry_after) == (503, 1)
    assert "the cloud has not answered yet" in caught.value.message


async def test_other_filters_are_as_an_edit() -> None:
    source = HandSource()
    rules, told = follow(source)
    only = tuple(each for each in FILTERS if each.name == "servicetopology")
    rules.use(only)
    assert (rules.rules.filters, told.seen) == (only, []), "they are in force once the rules are known"
    fill(source.store, [config_map(GETTER, 7)], 7)
    rules.use(FILTERS)
    assert [each.filters for each in told.seen] == [only, FILTERS]
    rules.use(FILTERS)
    assert len(told.seen) == 2, "nothing has changed"
    assert binds(rules.rules)


async def test_without_a_config_map_the_built_in_bindings_are_known_and_in_force() -> None:
    source = HandSource()
    rules, told = follow(source)
    fill(source.store, [], 7, kind="ConfigMap")
    assert rules.is_known
    await rules.wait_known(0.01)
    assert binds(rules.rules, "kube-proxy", "list")
    assert told.seen == [rules.rules], "an earlier process may have had others"
    fill(source.store, [], 8, kind="ConfigMap")
    assert len(told.seen) == 1, "nothing has changed"


async def test_a_hub_that_may_begin_without_a_cloud_takes_the_built_in_bindings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(in_force, "COPY_WAIT", 0.001)
    source, is_away = HandSource(), asyncio.Event()
    rules, told = follow(source)
    beginning = asyncio.create_task(rules.begin_without_cloud(is_away.is_set))
    with pytest.raises(StatusError):
        await rules.wait_known(0.01)
    is_away.set()
    await rules.wait_known(20.0)
    await beginning
    assert binds(rules.rules, "kube-proxy", "list")
    fill(source.store, [config_map(GETTER, 7)], 7)
    assert binds(rules.rules)
    assert len(told.seen) == 2


async def test_each_edit_is_in_force_at_once() -> None:
    source = HandSource()
    rules, told = follow(source)
    fill(source.store, [config_map(GETTER, 7)], 7)
    assert binds(rules.rules)
    source.store.apply("MODIFIED", raw(config_map({}, 8)))
    assert not binds(rules.rules)
    source.store.apply("MODIFIED", raw(config_map(GETTER, 9)))
    source.store.apply("DELETED", raw(config_map(GETTER, 10)))
    assert not binds(rules.rules)
    assert [binds(each) for each in told.seen] == [True, False, True, False]


async def test_an_edit_that_means_the_same_changes_no_view() -> None:
    source = HandSource()
    _, told = follow(source)
    fill(source.store, [config_map(GETTER, 7)], 7)
    same = {"servicetopology": " getter/endpointslices.discovery.k8s.io#get ,"}
    source.store.apply("MODIFIED", raw(config_map(same, 8)))
    source.store.advance(9)
    assert len(told.seen) == 1


async def test_a_new_bad_entry_is_logged_counted_and_reported_once_and_the_rest_applies(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = HandSource()
    rules, told = follow(source)
    before = value_of(metrics.RULE_ERRORS)
    bad = {**GETTER, "filter_endpoints": "kubelet/nodes, ok/endpoints"}
    fill(source.store, [config_map(bad, 7)], 7)
    assert binds(rules.rules)
    assert [each.key for each in rules.rules.problems] == ["filter_endpoints"]
    assert "kubelet/nodes" in caplog.text
    assert value_of(metrics.RULE_ERRORS) == before + 1
    source.store.apply("MODIFIED", raw(config_map({**bad, "cache_agents": "x"}, 8)))
    assert value_of(metrics.RULE_ERRORS) == before + 1, "it was told already"
    assert [each.text for each in told.problems] == ["kubelet/nodes"]


async def test_a_restored_cluster_is_read_anew() -> None:
    source = HandSource()
    rules, _ = follow(source)
    fill(source.store, [config_map({}, 700)], 700)
    fill(source.store, [config_map(GETTER, 5)], 6)
    assert binds(rules.rules)


async def test_filters_that_the_options_switch_off_stay_off() -> None:
    source = HandSource()
    rules, _ = follow(source, frozenset({"servicetopology"}))
    fill(source.store, [config_map(GETTER, 7)], 7)
    assert not binds(rules.rules)
