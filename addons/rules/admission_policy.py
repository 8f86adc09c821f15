"""The ValidatingAdmissionPolicy that refuses rules which hubs could not read, generated from the parser's own table.

`configmaps/rules-admission.yaml` is the output of `python -m addons.rules.admission_policy`. A policy needs no webhook:
the API server evaluates its CEL expressions itself.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import yaml

from addons.filters.chain import build_filters
from addons.filters.filter import READS, Filter
from addons.rules.entries import FILTER_PREFIX, LEASE, TYPO_DISTANCE, spellings
from addons.rules.shared_kinds import KIND, SECRETS
from addons.rules.table import (
    CACHE_AGENTS,
    MAX_SHOWN,
    MAX_VALUE_BYTES,
    NON_FILTER_KEYS,
    OFFLINE_LEASES,
    POOL_RESOURCES,
)
from addons.telemetry.labels import HUB
from kube.requests.component import MAX_LENGTH
from kube.requests.request_info import ResourceType

NAME = "edgehub-rules"
NAMESPACE, CONFIGMAP = "kube-system", "yurt-hub-cfg"
POLICIES = ResourceType("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies")

SPACE = r"[\t-\r\x{1c}-\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]"
"""The characters that `str.strip` removes, in RE2's syntax."""
VERB = "(" + "|".join(sorted(READS)) + ")"
NAMED = rf"([A-Za-z0-9._ -]{{0,{MAX_LENGTH - 2}}}[A-Za-z0-9._-])?"
"""The pattern of a component's name after its first character."""
COMPONENT = rf"(\*|[A-Za-z0-9._-]{NAMED})"
ENTRY_START = rf"{SPACE}*(-{COMPONENT}|\*|[A-Za-z0-9._]{NAMED}){SPACE}*"
"""The pattern of the start of an entry, with or without the `-` of an exclusion: a component's name never begins with
`-`, and `- ` begins an item of a YAML list."""
NO_COMPONENT = rf"^{SPACE}*-?{SPACE}*(\.|\.\.|(?i:{HUB})){SPACE}*([/#].*)?$"
"""The pattern of text in a component's position that is no component."""
BARE_VERB = rf"^{SPACE}*-?{SPACE}*{VERB}{SPACE}*$"
EMPTY = rf"^{SPACE}*$"


def policy(filters: Sequence[Filter]) -> list[dict[str, Any]]:
    """Return the policy and its binding. `filters` are all filters that some hub may have."""
    others = [_cached(), _leases(), _resources()]
    validations = [
        _near_misses(filters),
        _known_filters(filters),
        *others,
        *(_entries(filter_) for filter_ in filters),
    ]
    return [
        _object(
            "ValidatingAdmissionPolicy",
            {
                # Without an answer the edit passes: hubs skip entries that they cannot read in any case.
                "failurePolicy": "Ignore",
                "matchConstraints": {
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
                    "resourceRules": [
                        {
                            "apiGroups": [""],
                            "apiVersions": ["v1"],
                            "operations": ["CREATE", "UPDATE"],
                            "resources": ["configmaps"],
                            "resourceNames": [CONFIGMAP],
                        }
                    ],
                },
                "matchConditions": [{"name": "data-changed", "expression": _CHANGED}],
                "variables": [
                    {"name": "data", "expression": "has(object.data) ? object.data : {}"},
                    {"name": "misnamed", "expression": _misnamed(filters)},
                ],
                "validations": validations,
            },
        ),
        _object("ValidatingAdmissionPolicyBinding", {"policyName": NAME, "validationActions": ["Deny"]}),
    ]


_CHANGED = (
    "request.operation == 'CREATE' || "
    "(has(object.data) ? object.data : {}) != (has(oldObject.data) ? oldObject.data : {})"
)
"""The condition by which an edit of another field of an already bad ConfigMap passes."""


def _object(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": POLICIES.api_version,
        "kind": kind,
        "metadata": {"name": NAME},
        "spec": spec,
    }


def _names(filters: Sequence[Filter]) -> list[str]:
    """Return an expression for the keys' names without the prefix of a filter's key."""
    return [*NON_FILTER_KEYS, *sorted(filter_.name for filter_ in filters)]


def _misnamed(filters: Sequence[Filter]) -> str:
    """Return an expression for the keys that nearly equal a known name."""
    names = _names(filters)
    known = [*names, *(FILTER_PREFIX + filter_.name for filter_ in filters)]
    is_near = f"{_list(names)}.exists(n, {_is_near('k', names)})"
    return f"variables.data.filter(k, !(k in {_list(known)}) && {is_near})"


def _is_near(key: str, names: Sequence[str]) -> str:
    """Match as `addons.rules.entries.near_name` does, for a key and a name `n`."""
    bare = (
        f"({key}.startsWith('{FILTER_PREFIX}') ? {key}.substring({len(FILTER_PREFIX)}) : {key}).lowerAscii()"
    )
    squeezed = [f"{text}.replace('-', '').replace('_', '')" for text in (bare, "n")]
    positions = list(range(max(map(len, names))))
    ends = f"{bare}.endsWith(n.substring(i + {TYPO_DISTANCE} > size(n) ? size(n) : i + {TYPO_DISTANCE}))"
    is_written = f"{positions}.exists(i, i < size(n) && {bare}.startsWith(n.substring(0, i)) && {ends})"
    is_long = f"size({bare}) - size(n) <= {TYPO_DISTANCE} && size(n) - size({bare}) <= {TYPO_DISTANCE}"
    return f"({' == '.join(squeezed)} || (!{key}.contains('-') && {is_long} && {is_written}))"


def _near_misses(filters: Sequence[Filter]) -> dict[str, Any]:
    """Return the validation that no key nearly equals a known name: hubs would skip such a key silently."""
    names, key = _names(filters), "variables.misnamed[0]"
    meant = f"{_list(names)}.filter(n, {_is_near(key, names)})[0]"
    prefix = f"({key}.startsWith('{FILTER_PREFIX}') && !({meant} in {_list(NON_FILTER_KEYS)}) ? '{FILTER_PREFIX}' : '')"
    return {
        "expression": "size(variables.misnamed) == 0",
        "messageExpression": f"'key ' + {key} + ': there is no such key; did you mean ' + {prefix} + {meant} + '?'",
        "message": f"a key is almost, and not quite, one of {', '.join(names)}",
    }


def _known_filters(filters: Sequence[Filter]) -> dict[str, Any]:
    names = sorted(filter_.name for filter_ in filters)
    # The API server does not know added filters, whose names have a hyphen (`addons.filters.plugins`).
    is_unknown = f"!(k.substring({len(FILTER_PREFIX)}) in {_list(names)}) && !k.contains('-')"
    unknown = f"variables.data.filter(k, k.startsWith('{FILTER_PREFIX}') && {is_unknown})"
    right = f"there is no such filter; the filters are {', '.join(names)}"
    return {
        "expression": f"size({unknown}) == 0",
        "messageExpression": f"'key ' + {unknown}[0] + ': {right}'",
        "message": right,
    }


def _entries(filter_: Filter) -> dict[str, Any]:
    """Return an expression for the entries of both keys of a filter."""
    resources = sorted(spelling for of in filter_.resources for spelling in spellings(*of))
    one = "|".join(resource.replace(".", r"\.") for resource in resources)
    verbs = rf"#(;|{SPACE})*{VERB}({SPACE}*;(;|{SPACE})*{VERB})*(;|{SPACE})*"
    entry = rf"^{ENTRY_START}(/{SPACE}*(\*|{one}){SPACE}*({verbs})?)?$"
    right = (
        "write component, component/resource or component/resource#verb;verb, with - in front to exclude, "
        f"separated by commas; resources: {', '.join(resources)} or *; verbs: {', '.join(sorted(READS))}"
    )
    bad = [f"!e.matches({_raw(EMPTY)})"]
    wrong = [
        f"!e.matches({_raw(entry)})",
        f"e.matches({_raw(NO_COMPONENT)})",
        f"e.matches({_raw(BARE_VERB)})",
    ]
    return _no_bad_entry(
        (filter_.name, FILTER_PREFIX + filter_.name), [*bad, f"({' || '.join(wrong)})"], right
    )


def _cached() -> dict[str, Any]:
    entry = rf"^{ENTRY_START}$"
    right = "write components, each with - in front to exclude it, separated by commas"
    wrong = f"(!e.matches({_raw(entry)}) || e.matches({_raw(NO_COMPONENT)}))"
    return _no_bad_entry((CACHE_AGENTS,), [f"!e.matches({_raw(EMPTY)})", wrong], right)


def _leases() -> dict[str, Any]:
    entry = rf"^{SPACE}*{LEASE.pattern}{SPACE}*$"
    bad = [f"!e.matches({_raw(EMPTY)})", f"!e.matches({_raw(entry)})"]
    return _no_bad_entry((OFFLINE_LEASES,), bad, "write namespace/name, separated by commas")


def _resources() -> dict[str, Any]:
    entry, secret = (rf"^{SPACE}*{field.pattern}{SPACE}*$" for field in (KIND, SECRETS))
    wrong = f"(!e.matches({_raw(entry)}) || e.matches({_raw(secret)}))"
    right = "write group/version/resource, separated by commas; secrets are never shared"
    return _no_bad_entry((POOL_RESOURCES,), [f"!e.matches({_raw(EMPTY)})", wrong], right)


def _no_bad_entry(keys: Sequence[str], bad: Sequence[str], right: str) -> dict[str, Any]:
    """Return an expression that holds if no entry of these keys is bad; its message names the first bad one."""
    is_bad = " && ".join(bad)
    long = f"size(bytes(variables.data[k])) > {MAX_VALUE_BYTES}"
    has_bad = f"({long} || variables.data[k].split(',').exists(e, {is_bad}))"
    key = f"{_list(keys)}.filter(k, k in variables.data && {has_bad})"
    shown = (
        f"variables.data[k].split(',').filter(e, {is_bad}).map(e, "
        f"size(e) > {MAX_SHOWN} ? e.substring(0, {MAX_SHOWN}) : e)"
    )
    entry = f"'\"' + {shown}[0].trim().replace('\\n', ' ') + '\" is not right: {right}'"
    why = f"{long} ? 'the value is longer than {MAX_VALUE_BYTES} bytes' : {entry}"
    first = f"{key}.map(k, 'key ' + k + ': ' + ({why}))[0]"
    return {"expression": f"size({key}) == 0", "messageExpression": first, "message": right}


def _list(names: Sequence[str]) -> str:
    return "[" + ", ".join(f"'{name}'" for name in names) + "]"


def _raw(pattern: str) -> str:
    return f"r'{pattern}'"


HEAD = """\
# Refuses an edit of the rules with an entry that hubs would skip, and names the entry and the right form. The API
# server evaluates it without the manager. Unknown keys pass, except filter_<name> of an unknown filter, and misspelt
# names.
# Generated by `python -m addons.rules.admission_policy`: change the filters, not this file.
"""


def manifest() -> str:
    """Return the manifest that users apply."""
    text = yaml.safe_dump_all(policy(build_filters(health=True)), sort_keys=False, width=10_000)
    return HEAD + str(text)


if __name__ == "__main__":
    sys.stdout.write(manifest())
