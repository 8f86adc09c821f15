"""The copies of the offline room implement the interface that sources write to."""

from __future__ import annotations

from pathlib import Path

from addons.views.persistence import SourceCopies, SourceCopy
from kube.reflector.reflector import Reflector
from kube.store.store import Store
from tests.addons.support.copying import PODS, copies_in
from tests.addons.support.offline_parts import Told


async def test_copies_on_disk_fit(tmp_path: Path) -> None:
    store, client = Store(), Told()
    async with copies_in(tmp_path) as made:
        copies: SourceCopies = made
        copy: SourceCopy = copies.copy("", PODS, store)
        copy.start(Reflector(client, PODS, store)).close()
        assert copy.is_starting
        assert copies.list_watches("") == {}
        copy.close()
