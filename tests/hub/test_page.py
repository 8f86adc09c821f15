"""The status page at `/` in a real browser, from the first view through a trial of rules to an outage."""

from __future__ import annotations

from pathlib import Path

import aiohttp

from tests.addons.support.samples import cloud_service, config_map, service
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.faults import Refuse
from tests.hub.support.process import Hub, started
from tests.support.browser import Browser, find_browser


async def test_the_page_shows_components_hidden_objects_rule_trials_and_outages(
    cloud: ScriptableCloud, tmp_path: Path
) -> None:
    find_browser()
    cloud.store.create(service("web"))
    cloud.store.create(cloud_service("lb"))
    cloud.store.create(config_map({"cache_agents": "reader"}))
    services = "/api/v1/services?resourceVersion=0"
    async with (
        started(Hub(tmp_path, cloud.url)) as hub,
        aiohttp.ClientSession() as session,
        Browser(tmp_path) as page,
    ):
        await page.open(hub.admin_url)
        await page.until("document.getElementById('state').innerText.includes('Online for')")
        # On a phone a touch unfolds a line, which stays unfolded when its component asks again.
        await page.resize(390, 844)
        rows = "[...document.querySelectorAll('#components tbody tr')]"
        line = f"{rows}.find(e => e.cells[0].innerText === 'reader')"
        seen = f"{line}.lastElementChild.innerText"
        async with session.get(hub.url + services, headers={"User-Agent": "reader"}) as answer:
            assert answer.status == 200
        await page.until(f"!!{line}")
        await page.run(f"{line}.click()")
        before = await page.run(seen)
        while await page.run(seen) == before:
            async with session.get(hub.url + services, headers={"User-Agent": "reader"}) as answer:
                assert answer.status == 200
        assert await page.run(f"{line}.className") == "open"
        await page.resize(1600, 900)
        for component in ("kube-proxy", "reader"):
            async with session.get(hub.url + services, headers={"User-Agent": component}) as answer:
                assert answer.status == 200
        # The page updates itself when a component sends requests.
        await page.until("document.getElementById('components').innerText.includes('reader')")
        # Keyboard focus in a table survives its update.
        await page.run("document.querySelector('#components .scroll').focus()")
        async with session.get(hub.url + services, headers={"User-Agent": "kubelet"}) as answer:
            assert answer.status == 200
        await page.until("document.getElementById('components').innerText.includes('kubelet')")
        assert await page.run("document.activeElement.matches('#components .scroll')")
        # Try an edit of the rules.
        await page.run("document.getElementById('edit').focus(), document.getElementById('edit').select()")
        await page.type("discardcloudservice: reader\n")
        await page.until("document.getElementById('trial').innerText.includes('1 object ')")
        await page.until("document.getElementById('trial').innerText.includes('default/lb')")
        # Explain what kube-proxy got; the explanation has a URL.
        await page.open(f"{hub.admin_url}/?component=kube-proxy&resource=services")
        await page.until("document.getElementById('explained').innerText.includes('LoadBalancer')")
        # A selection by keyboard reloads the page, and the same list has the focus.
        await page.run("document.querySelector('select[name=verb]').focus()")
        await page.press("ArrowDown")
        await page.until("location.search.includes('verb=watch')")
        await page.until("document.activeElement?.name === 'verb'")
        await page.open(hub.admin_url)
        # Sixty components are shown as ten lines, until the user expands or searches them.
        for number in range(60):
            named = {"User-Agent": f"agent-{number:02}"}
            async with session.get(hub.url + services, headers=named) as answer:
                assert answer.status == 200
        shown = "[...document.querySelectorAll('#components tbody tr')].filter(e => !e.hidden)"
        await page.until("document.querySelector('#components .tools button')?.innerText === 'Show all 64'")
        assert await page.run(f"{shown}.length") == 10
        await page.run("document.querySelector('#components .tools button').click()")
        assert await page.run(f"{shown}.length") == 64
        await page.run("document.querySelector('#components .tools button').click()")
        search = "Object.assign(document.querySelector('#components input'), {value: 'agent-5'})"
        await page.run(f"{search}.dispatchEvent(new Event('input')), 0")
        assert await page.run(f"{shown}.every(e => e.innerText.includes('agent-5'))")
        # A click on a column header sorts the lines.
        await page.run("document.querySelector('#components th button').click()")
        names = f"{shown}.map(e => e.cells[0].innerText)"
        assert await page.run(names) == [f"agent-{number}" for number in range(50, 60)]
        await page.run("document.querySelector('#components th button').click()")
        assert (await page.run(names))[0] == "agent-59"
        # On a phone each component is one line, which unfolds when touched.
        await page.resize(390, 844)
        await page.until("innerWidth === 390")
        height = f"{shown}[0].getBoundingClientRect().height"
        folded = await page.run(height)
        await page.run(f"{shown}[0].click()")
        assert folded < 40 < await page.run(height)
        # Rules of one filter are distinguished by their components.
        rules = (
            "[...document.querySelectorAll('#rules tbody tr')].filter(e => !e.hidden).map(e => e.innerText)"
        )
        assert len({*await page.run(rules)}) == len(await page.run(rules)) == 10
        # Long paths do not make a table wider than the screen.
        beyond = (
            "[...document.querySelectorAll('.scroll td')].filter(e => e.getBoundingClientRect().right > 391)"
        )
        assert await page.run(f"{beyond}.map(e => e.innerText)") == []
        assert await page.run("document.documentElement.scrollHeight") < 6000
        await page.resize(1600, 900)
        # The page shows an outage.
        cloud.faults.add(Refuse(503, "Gone", "the cloud is away"), times=100_000)
        await page.until("document.getElementById('state').innerText.includes('Offline for')")
        await page.until("document.title.startsWith('Offline')")
        await page.until("document.getElementById('announced').textContent === 'Offline'")
        wide = (
            "[...document.querySelectorAll('main *, header *')].filter(e => !e.closest('pre, .scroll') && "
            "e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"
        )
        for columns in (1600, 390):
            await page.resize(columns, 900)
            await page.until(f"innerWidth === {columns}")
            assert await page.run(wide) == [], f"wider than a screen of {columns} pixels"
        assert page.complaints == []
