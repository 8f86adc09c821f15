"""The pages under `/debug`, as `scripts/hub` and tools request them."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from addons.link.drills import Drills
from addons.link.request_records import RequestRecord
from addons.requests.caller import CredentialSource
from addons.ui.debug_pages import Profiles
from addons.ui.reports.hub_reports import REPORTS
from addons.ui.reports.rule_trial import MAX_TEXT
from addons.ui.running_hub import RunningHub
from kube.errors import StatusError
from tests.addons.support.admin_client import AdminClient, served


@pytest.mark.parametrize("name", REPORTS)
async def test_each_report_is_json(pages: AdminClient, name: str) -> None:
    assert await pages.json(f"/debug/{name}") is not None


async def test_a_resource_is_explained_with_counts_and_hidden_objects(pages: AdminClient) -> None:
    path = "/debug/explain?component=chosen&resource=services"
    assert (await pages.json(path))["counts"]["hidden"] == 1
    _, text = await pages.ask(path)
    assert "default/lb: hidden" in text


@pytest.mark.parametrize("page", ["explain?component=kube-proxy&resource=", "dump?resource="])
async def test_an_unknown_resource_is_an_error_with_a_suggestion(pages: AdminClient, page: str) -> None:
    code, text = await pages.ask(f"/debug/{page}servics")
    assert (code, "is it 'services'?" in text) == (404, True)
    assert (await pages.ask(f"/debug/{page}svc"))[0] == 200
    if "explain" in page:
        assert (await pages.ask(f"/debug/{page}widgets.acme.example"))[0] == 200, (
            "of a kind that nobody has read"
        )


async def test_a_dump_is_served(pages: AdminClient) -> None:
    assert await pages.ask("/debug/dump") == (200, "services\n")
    code, text = await pages.ask("/debug/dump?resource=services&as=chosen")
    assert (code, "name: web" in text, "name: lb" in text) == (200, True, False)
    code, text = await pages.ask("/debug/dump?resource=pods")
    assert (code, "keeps no copy" in text) == (404, True)


async def test_a_rule_trial_is_served(pages: AdminClient) -> None:
    found = await pages.json("/debug/rules/try", b"discardcloudservice: chosen, seen\n")
    assert found["lost"]["objects"] == 1
    assert [each["component"] for each in found["components"]] == ["seen"]


@pytest.mark.parametrize(("text", "code"), [(b"a: [", 400), (b"#" * (MAX_TEXT + 1), 413)])
async def test_malformed_rules_are_400(pages: AdminClient, text: bytes, code: int) -> None:
    assert (await pages.ask("/debug/rules/try", text))[0] == code


async def test_a_rule_trial_requires_a_post_from_the_same_site(pages: AdminClient) -> None:
    assert "POST a ConfigMap" in (await pages.ask("/debug/rules/try"))[1]
    code, _ = await pages.ask("/debug/rules/try", b"a: b", Origin="https://evil.example")
    assert code == 403


@pytest.mark.parametrize(
    ("asked", "code", "message"),
    [
        ("", 400, "offline, online or slow"),
        ("?link=sideways", 400, "offline, online or slow"),
        ("?link=slow", 400, "1 to 10000000 kbit/s"),
        ("?link=offline&minutes=-1", 400, "a drill must last 1 to 60 minutes"),
        ("?link=offline&kbps=5", 400, "only slow takes kbit/s and ms; a number of minutes is --minutes"),
        ("?link=online&ms=5", 400, "only slow takes kbit/s and ms"),
        ("?link=slow&kbps=fast", 400, "kbps is a number, not 'fast'"),
        ("?link=offline&minutes=61", 400, "1 to 60 minutes"),
        ("?link=offline&minutes=0", 400, "1 to 60 minutes"),
        ("?link=slow&kbps=64&ms=300", 200, '"kbps": 64'),
        ("?link=offline", 200, '"link": "offline"'),
        ("?link=online", 200, '"link": "online"'),
    ],
)
async def test_a_drill_is_started_by_a_post(
    drilled: tuple[AdminClient, Drills], asked: str, code: int, message: str
) -> None:
    pages, drills = drilled
    found, text = await pages.ask(f"/debug/link{asked}", b"")
    assert (found, message in text) == (code, True), text
    assert (drills.current is not None) is (code == 200 and "online" not in asked)


async def test_a_drill_without_permission_is_refused(
    drilled: tuple[AdminClient, Drills], pages: AdminClient
) -> None:
    allowing, drills = drilled
    drills.are_allowed = False
    for each in (allowing, pages):
        code, text = await each.ask("/debug/link?link=offline", b"")
        assert (code, "--allow-drills" in text) == (403, True)
    assert drills.current is None
    assert (await allowing.ask("/debug/link?link=offline", b"", Origin="https://evil.example"))[0] == 403


@pytest.fixture
async def drilled(hub: RunningHub) -> AsyncIterator[tuple[AdminClient, Drills]]:
    """A hub that permits drills."""
    drills = Drills()
    drills.are_allowed = True
    async with served(replace(hub, drills=drills)) as made:
        yield made, drills
    drills.close()


async def test_the_log_and_the_support_archive_are_served(pages: AdminClient, hub: RunningHub) -> None:
    assert (await pages.ask("/debug/log"))[0] == 200
    hub.records.own_requests.begin(RequestRecord("GET", "/livez", "https://a:6443", CredentialSource.HUB))
    (asked,) = await pages.json("/debug/requests")
    assert (asked["target"], asked["isUnderWay"]) == ("/livez", True)
    async with pages.session.get(f"{pages.url}/debug/support") as answer:
        assert answer.status == 200
        assert b"edgehub-support/status.json" in gzip.decompress(await answer.read())


def busy_work() -> int:
    return sum(range(1000))


async def test_a_profile_has_the_work_of_the_loop_in_both_tables() -> None:
    taken = asyncio.create_task(Profiles().record_profile("1"))
    while not taken.done():
        busy_work()
        await asyncio.sleep(0.001)
    text = await taken
    assert text.count("busy_work") == 2
    assert "Ordered by: internal time" in text
    assert "Ordered by: cumulative time" in text


async def test_a_second_profile_is_refused_while_one_runs() -> None:
    profiles = Profiles()
    first = asyncio.create_task(profiles.record_profile("1"))
    await asyncio.sleep(0)
    with pytest.raises(StatusError, match="is being made"):
        await profiles.record_profile("1")
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert "internal time" in await profiles.record_profile("1"), "one that was left leaves the profiler free"


@pytest.mark.parametrize("seconds", ["0", "61", "-1", "x", ""])
async def test_a_profile_of_an_invalid_length_is_refused(seconds: str) -> None:
    with pytest.raises(StatusError, match="seconds is a number from 1 to 60"):
        await Profiles().record_profile(seconds)
