"""The rules in force: how they are read and edited, the versions issued under them, and Events about invalid
entries."""

from __future__ import annotations

import asyncio
import datetime
import logging
from typing import Any

import pytest

from addons.filters.chain import FILTERS
from addons.rules import in_force
from addons.rules.events import ProblemEvents, event_of, send_event
from addons.rules.in_force import RulesInForce
from addons.rules.issued_versions import ANY_VERSION, IssuedVersions, RulesEdit
from addons.rules.table import MAX_PROBLEMS, Problem, Rules
from addons.telemetry import metrics
from kube.errors import StatusError
from kube.http.client import ApiResponse, Client
from tests.addons.support.hand_source import HandSource
from tests.addons.support.observed import until, value_of
from tests.addons.support.offline_parts import QueuedAnswers
from tests.addons.support.samples import config_map, fill, raw
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.faults import Refuse
from tests.cloud.sessions import new_session

GETTER = {"filter_servicetopology": "getter/endpointslices#get"}


class RecordedRules:
    """Record each change of the rules, and each reported problem."""

    def __init__(self) -> None:
        self.seen: list[Rules] = []
        self.problems: list[Problem] = []


def follow(source: HandSource, disabled: frozenset[str] = frozenset()) -> tuple[RulesInForce, RecordedRules]:
    notified = RecordedRules()

    def why() -> str:
        return str(source.reflector.error or "the cloud has not answered yet")

    rules = RulesInForce(FILTERS, disabled, lambda problem, _uid: notified.problems.append(problem))
    rules.listen(lambda: notified.seen.append(rules.rules))
    rules.follow(source.store, why)
    return rules, notified


def binds(rules: Rules, component: str = "getter", verb: str = "get") -> bool:
    return bool(rules.bindings.chain(component, "discovery.k8s.io", "endpointslices", verb))


async def test_the_rules_are_unknown_until_the_cloud_has_responded() -> None:
    source = HandSource()
    rules, _ = follow(source)
    assert not rules.is_known
    with pytest.raises(StatusError) as caught:
        await rules.wait_known(0.01)
    assert (caught.value.code, caught.value.retry_after) == (503, 1)
    assert "the cloud has not answered yet" in caught.value.message


async def test_a_changed_set_of_filters_applies_like_an_edit_of_the_rules() -> None:
    source = HandSource()
    rules, notified = follow(source)
    only = tuple(each for each in FILTERS if each.name == "servicetopology")
    rules.use(only)
    assert (rules.rules.bindings.filters, notified.seen) == (only, []), (
        "they are in force once the rules are known"
    )
    fill(source.store, [config_map(GETTER, 7)], 7)
    rules.use(FILTERS)
    assert [each.bindings.filters for each in notified.seen] == [only, FILTERS]
    rules.use(FILTERS)
    assert len(notified.seen) == 2, "nothing has changed"
    assert binds(rules.rules)


async def test_without_a_config_map_the_built_in_bindings_are_known_and_in_force() -> None:
    source = HandSource()
    rules, notified = follow(source)
    fill(source.store, [], 7, kind="ConfigMap")
    assert rules.is_known
    await rules.wait_known(0.01)
    assert binds(rules.rules, "kube-proxy", "list")
    assert notified.seen == [rules.rules], "an earlier process may have had others"
    fill(source.store, [], 8, kind="ConfigMap")
    assert len(notified.seen) == 1, "nothing has changed"


async def test_a_hub_allowed_to_start_offline_uses_the_built_in_bindings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(in_force, "COPY_WAIT", 0.001)
    source, is_away = HandSource(), asyncio.Event()
    rules, notified = follow(source)
    beginning = asyncio.create_task(rules.begin_without_cloud(is_away.is_set))
    with pytest.raises(StatusError):
        await rules.wait_known(0.01)
    is_away.set()
    await rules.wait_known(20.0)
    await beginning
    assert binds(rules.rules, "kube-proxy", "list")
    fill(source.store, [config_map(GETTER, 7)], 7)
    assert binds(rules.rules)
    assert len(notified.seen) == 2


async def test_each_edit_is_in_force_at_once() -> None:
    source = HandSource()
    rules, notified = follow(source)
    fill(source.store, [config_map(GETTER, 7)], 7)
    assert binds(rules.rules)
    source.store.apply("MODIFIED", raw(config_map({}, 8)))
    assert not binds(rules.rules)
    source.store.apply("MODIFIED", raw(config_map(GETTER, 9)))
    source.store.apply("DELETED", raw(config_map(GETTER, 10)))
    assert not binds(rules.rules)
    assert [binds(each) for each in notified.seen] == [True, False, True, False]


async def test_an_edit_without_effect_changes_no_view() -> None:
    source = HandSource()
    _, notified = follow(source)
    fill(source.store, [config_map(GETTER, 7)], 7)
    same = {"servicetopology": " getter/endpointslices.discovery.k8s.io#get ,"}
    source.store.apply("MODIFIED", raw(config_map(same, 8)))
    source.store.advance(9)
    assert len(notified.seen) == 1


async def test_a_new_bad_entry_is_logged_counted_and_reported_once_and_the_rest_applies(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = HandSource()
    rules, notified = follow(source)
    before = value_of(metrics.RULE_ERRORS)
    bad = {**GETTER, "filter_endpoints": "kubelet/nodes, ok/endpoints"}
    fill(source.store, [config_map(bad, 7)], 7)
    assert binds(rules.rules)
    assert [each.key for each in rules.rules.problems.named] == ["filter_endpoints"]
    assert "kubelet/nodes" in caplog.text
    assert value_of(metrics.RULE_ERRORS) == before + 1
    source.store.apply("MODIFIED", raw(config_map({**bad, "cache_agents": "x"}, 8)))
    assert value_of(metrics.RULE_ERRORS) == before + 1, "it was told already"
    assert [each.text for each in notified.problems] == ["kubelet/nodes"]


async def test_rules_of_a_restored_cluster_apply_despite_a_lower_version() -> None:
    source = HandSource()
    rules, _ = follow(source)
    fill(source.store, [config_map({}, 700)], 700)
    fill(source.store, [config_map(GETTER, 5)], 6)
    assert binds(rules.rules)


async def test_filters_disabled_by_options_stay_disabled() -> None:
    source = HandSource()
    rules, _ = follow(source, frozenset({"servicetopology"}))
    fill(source.store, [config_map(GETTER, 7)], 7)
    assert not binds(rules.rules)


STORED = RulesEdit("a", {"pods": 100})


@pytest.mark.parametrize(
    ("stored", "edits", "other_rules", "elsewhere"),
    [
        # Before a node's first hub there were no filters.
        (None, [], 0, 0),
        (None, ["a"], 0, 0),
        # The same rules as before the restart, but filters may have had other inputs.
        (STORED, ["a"], 100, ANY_VERSION),
        (RulesEdit("a"), ["a"], 0, ANY_VERSION),
        # Edited while no hub ran: the newest version that the earlier process issued is unknown.
        (STORED, ["b"], ANY_VERSION, ANY_VERSION),
        (RulesEdit("a"), ["b"], ANY_VERSION, ANY_VERSION),
        # An edit during this process.
        (None, ["a", "b"], 0, ANY_VERSION),
        (RulesEdit("a"), ["a", "b"], ANY_VERSION, ANY_VERSION),
    ],
)
def test_versions_issued_before_a_restart_or_an_edit_are_recorded_as_bounds(
    stored: RulesEdit | None, edits: list[str], other_rules: int, elsewhere: int
) -> None:
    given = IssuedVersions(stored)
    for digest in edits:
        given.rules_edited(digest, {"pods": 0})
    assert (given.of_other_rules("pods"), given.of_elsewhere("pods")) == (other_rules, elsewhere)


def test_an_edit_retains_the_bounds_of_resources_without_events_since() -> None:
    """A client that was disconnected meanwhile has objects that the filters of the earlier process changed."""
    given = IssuedVersions(RulesEdit("a"))
    given.rules_edited("a", {"pods": 0})
    given.reached("pods", 120)
    given.rules_edited("b", {"pods": 7, "services": 0})
    assert (given.of_other_rules("pods"), given.of_other_rules("services")) == (120, ANY_VERSION)


def test_an_edit_records_the_version_issued_for_each_filtered_resource() -> None:
    """A single number for all resources once made every list of the other resources 410 for ever."""
    stored: list[RulesEdit] = []
    given = IssuedVersions(None, stored.append)
    given.rules_edited("a", {})
    given.rules_edited("b", {"events": 10_000, "services": 7})
    assert [given.of_other_rules(each) for each in ("events", "services", "pods")] == [10_000, 7, 0]
    given.rules_edited("c", {"services": 5})
    assert given.of_other_rules("services") == 7
    assert stored[-1] == RulesEdit("c", {"events": 10_000, "services": 7})


def test_a_stored_bound_is_capped_by_the_version_of_its_resource() -> None:
    """The cloud may have been restored from a backup."""
    stored: list[RulesEdit] = []
    given = IssuedVersions(STORED, stored.append)
    given.rules_edited("b", {"pods": 0, "nodes": 50})
    given.reached("pods", 120)
    assert (given.of_other_rules("pods"), given.of_elsewhere("pods")) == (120, 120)
    given.reached("pods", 30)
    given.reached("nodes", 60)
    assert (given.of_other_rules("pods"), given.of_other_rules("nodes")) == (30, 60)
    assert stored[-1].versions == {"pods": 30, "nodes": 60}
    given.rules_edited("c", {})
    assert given.of_other_rules("pods") == 30, "what the earlier process gave is known by now"


def test_without_stored_bounds_any_version_may_have_been_issued() -> None:
    given = IssuedVersions(is_new=False)
    given.rules_edited("a", {})
    assert given.of_elsewhere("pods") == ANY_VERSION
    given.reached("pods", 9)
    assert (given.of_elsewhere("pods"), given.of_elsewhere("nodes")) == (9, ANY_VERSION)


def test_bounds_from_before_a_restore_stay_with_their_resource() -> None:
    stored: list[RulesEdit] = []
    given = IssuedVersions(RulesEdit("a", former={"pods": 5}), stored.append)
    given.restored("pods", 9)
    given.rules_edited("a", {})
    assert [each.former for each in stored] == [{"pods": 9}]
    given.restored("pods", 7)
    given.reached("pods", 2)
    assert (given.of_former("pods"), given.of_elsewhere("pods")) == (9, 9)
    assert given.of_former("nodes") == 0


NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
PROBLEM = Problem("filter_x", "a/b#c", "there is no filter of that name")
CONFIGMAP = ("kube-system", "yurt-hub-cfg")
UID = "11111111-2222-3333-4444-555555555555"


def test_every_node_uses_the_same_event_name() -> None:
    one, other = (event_of(PROBLEM, CONFIGMAP, UID, node, NOW) for node in ("n1", "n2"))
    assert one["metadata"] == other["metadata"]
    assert one["source"] != other["source"]
    different = event_of(Problem("filter_x", "a/b#d", PROBLEM.why), CONFIGMAP, UID, "n1", NOW)
    assert different["metadata"] != one["metadata"]


def test_the_event_refers_to_the_uid_of_the_configmap() -> None:
    event: Any = event_of(PROBLEM, CONFIGMAP, UID, "n1", NOW)
    assert event["involvedObject"]["uid"] == UID
    other: Any = event_of(PROBLEM, CONFIGMAP, "of one made anew", "n1", NOW)
    assert other["metadata"]["name"] != event["metadata"]["name"], "the first Event tells nothing about it"
    unknown: Any = event_of(PROBLEM, CONFIGMAP, "", "n1", NOW)
    assert "uid" not in unknown["involvedObject"]


def test_an_event_names_the_skipped_entry_and_the_reason() -> None:
    event = event_of(PROBLEM, CONFIGMAP, UID, "n1", NOW)
    assert event["message"] == "key filter_x: 'a/b#c' is skipped: there is no filter of that name"
    assert event["firstTimestamp"] == "2026-01-02T03:04:05Z"


async def test_the_second_hub_accepts_the_existing_event() -> None:
    event = event_of(PROBLEM, CONFIGMAP, UID, "n1", NOW)
    async with ScriptableCloud() as cloud, new_session() as session:
        client = Client(session, cloud.url, {})
        await send_event(client, event)
        await send_event(client, event)
        (made,) = cloud.store.list("events", "kube-system")
        assert made["involvedObject"]["name"] == "yurt-hub-cfg"


@pytest.mark.parametrize("code", [403, 500])
async def test_a_refused_event_is_ignored(code: int) -> None:
    event = event_of(PROBLEM, CONFIGMAP, UID, "n1", NOW)
    async with ScriptableCloud() as cloud, new_session() as session:
        rule = cloud.faults.add(Refuse(code, "Refused", "no"))
        await send_event(Client(session, cloud.url, {}), event)
        assert rule.used == 1
        with pytest.raises(StatusError):
            cloud.store.get("events", "yurt-hub-cfg", "kube-system")


async def test_an_unreachable_cloud_is_ignored_by_the_event_sender(caplog: pytest.LogCaptureFixture) -> None:
    async with new_session() as session:
        client = Client(session, "http://127.0.0.1:1", {})
        with caplog.at_level(logging.INFO):
            await send_event(client, event_of(PROBLEM, CONFIGMAP, UID, "n1", NOW))
        assert "was not sent" in caplog.text


class Counted(QueuedAnswers):
    """A cloud that records the number of concurrent requests."""

    def __init__(self) -> None:
        super().__init__()
        self.at_once = self.most_at_once = 0

    async def request(self, *args: Any, **how: Any) -> ApiResponse:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        return await super().request(*args, **how)


async def test_events_are_sent_one_by_one_and_the_oldest_are_dropped_beyond_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("addons.rules.events.PAUSE", 0)
    cloud, before = Counted(), value_of(metrics.RULE_EVENTS_DROPPED)
    events = ProblemEvents(cloud, CONFIGMAP, "n1")
    for number in range(MAX_PROBLEMS + 50):
        events.report(Problem("filter_x", f"entry {number}", "bad"), UID)
    sending = asyncio.create_task(events.run())
    await until(lambda: len(cloud.heard) == MAX_PROBLEMS)
    assert cloud.most_at_once == 1
    assert "entry 50" in cloud.heard[0].document["message"]
    assert value_of(metrics.RULE_EVENTS_DROPPED) == before + 50
    events.report(PROBLEM, UID)
    await until(lambda: len(cloud.heard) == MAX_PROBLEMS + 1)
    sending.cancel()


async def test_two_events_are_sent_with_a_pause() -> None:
    cloud = Counted()
    events = ProblemEvents(cloud, CONFIGMAP, "n1")
    events.report(PROBLEM, UID)
    events.report(Problem("filter_x", "other", "bad"), UID)
    sending = asyncio.create_task(events.run())
    await until(lambda: cloud.heard)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(cloud.heard) == 1
    sending.cancel()
