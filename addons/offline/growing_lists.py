"""Lists of which the cloud has given some pages to a client, and not yet the last."""

from __future__ import annotations

from collections import OrderedDict

from addons.offline.cached_response import MAX_BODY, CachedResponse, ResponseKey
from kube.bounds import reached

MAX_GROWING = 4
"""Lists of the node, and as many of all other callers. Each has MAX_BODY at most."""


class GrowingLists:
    """Puts the pages of a list together as they pass, under the key of the list's answer."""

    def __init__(self) -> None:
        self._of_node: OrderedDict[str, tuple[str, CachedResponse]] = OrderedDict()
        self._of_others: OrderedDict[str, tuple[str, CachedResponse]] = OrderedDict()

    def add(self, key: ResponseKey, token: str, page: CachedResponse) -> CachedResponse | None:
        """Take the page that a client asked for by a continue token ("" for the first page).

        The whole list when this was its last page; None before, and where its earlier pages have not passed.
        """
        lists = self._of_others if key.owner else self._of_node
        expected, known = lists.get(key.name, ("", None)) if token else ("", None)
        if token != expected:
            return None  # of another list than the one that grows
        grown = known.followed_by(token, page) if known is not None else page
        lists.pop(key.name, None)
        following = page.next_page()
        if not following:
            return grown if following is not None else None
        if grown.size > MAX_BODY:
            reached("kept answer")
            return None
        lists[key.name] = following, grown
        if len(lists) > MAX_GROWING:
            lists.popitem(last=False)
            reached("lists that grow")
        return None
