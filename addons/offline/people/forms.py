"""The form in which a client gets the objects of a copy: as the copy has them, or as JSON or a Table made of them."""

from __future__ import annotations

from collections.abc import Iterable

from addons.requests.object_read import ObjectRead
from kube.schemas.json_objects import is_known
from kube.store.listing import METADATA, WHOLE, Form
from kube.store.made_forms import AS_JSON, METADATA_AS_JSON, TABLES
from kube.store.store import Store
from kube.wire.encoding import Encoding
from kube.wire.negotiation import METADATA_KIND, METADATA_LIST_KIND, TABLE_KIND, Representation


def first_form(accepted: Iterable[Representation], read: ObjectRead, store: Store) -> Form | None:
    """The first of some forms that can be made of a store's objects."""
    return next((form for clause in accepted if (form := _form_of(clause, read, store)) is not None), None)


def _form_of(accepted: Representation, read: ObjectRead, store: Store) -> Form | None:
    is_same = accepted.encoding is store.codec.encoding
    is_made = not is_same and accepted.encoding is Encoding.JSON and is_known(store.api_version, store.kind)
    if not is_same and not is_made:
        return None
    if accepted.kind == TABLE_KIND:
        return TABLES[accepted.version, read.include]
    if accepted.kind not in ("", METADATA_LIST_KIND if read.verb == "list" else METADATA_KIND):
        return None
    if is_same:
        return METADATA if accepted.kind else WHOLE
    return METADATA_AS_JSON if accepted.kind else AS_JSON
