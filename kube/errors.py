"""The errors of the Kubernetes API: an exception that carries a metav1.Status, and a constructor for each reason.

Reasons and wording are those of k8s.io/apimachinery/pkg/api/errors, because clients branch on them.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import orjson

MAX_QUOTED = 256
"""The most characters of a foreign body in a message: enough to recognise a proxy's page, too few to leak much."""

# The reason that client-go gives a response without a Status (apimachinery, NewGenericServerResponse).
REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}

HISTORY_RESTARTED = "the cluster's resource versions went backwards"
"""The message of the 410 by which a hub ends watches after the cloud was restored. Follower hubs look for it."""

REFUSALS = frozenset({400, 401, 403, 404, 405, 406, 415, 422})
"""Codes for a fault of the request itself. A retry cannot help, so the client must get the answer."""


class Cause(NamedTuple):
    """One cause of a 422: the reason, its message and the field."""

    reason: str
    field: str
    message: str


class StatusError(Exception):
    """An API error with code, reason, message and details, as the client gets it.

    `details` has the JSON fields of metav1.StatusDetails (name, group, kind, uid, causes, retryAfterSeconds).
    `retry_after` is the Retry-After header in seconds, None for no header. client-go retries a 429 or 5xx with this
    header up to ten times, and reports one without it at once.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        retry_after: int | None = None,
        *,
        continue_token: str = "",
    ) -> None:
        """Make an error. `continue_token` lets a client whose own continue token has expired go on with a newer
        list."""
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details: Mapping[str, Any] = dict(details or {})
        self.retry_after = retry_after
        self.continue_token = continue_token

    def again(self) -> "StatusError":
        """Copy the error for another caller to raise, because a raised exception holds the stack frames of each
        caller."""
        said = self.code, self.reason, self.message, self.details, self.retry_after
        return StatusError(*said, continue_token=self.continue_token)

    def to_dict(self) -> dict[str, Any]:
        """The Status object, with the fields in kube-apiserver's order."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.continue_token} if self.continue_token else {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": dict(self.details),
            "code": self.code,
        }
        return {name: value for name, value in status.items() if value not in ("", {}) or name == "metadata"}

    def to_json(self) -> bytes:
        """The Status object as JSON, with a final newline as kube-apiserver writes it."""
        return json.dumps(self.to_dict(), separators=(",", ":")).encode() + b"\n"


def _of_code(code: int) -> Callable[[str], StatusError]:
    """Make a constructor of errors with this code. The constructor takes the message."""
    return lambda message: StatusError(code, REASONS[code], message)


bad_request = _of_code(400)
"""400: the request is malformed; the client must not repeat it."""
unauthorized = _of_code(401)
"""401: the server cannot authenticate the caller."""
forbidden = _of_code(403)
"""403: the caller is authenticated, and lacks the right."""
method_not_supported = _of_code(405)
"""405: the resource exists, but does not support this verb."""
not_acceptable = _of_code(406)
"""406: the server has no representation that the client accepts."""
conflict = _of_code(409)
"""409: another client has changed the object meanwhile."""
expired = _of_code(410)
"""410: the resourceVersion or continue token is too old; the client must list again."""
unsupported_media_type = _of_code(415)
"""415: the Content-Type of the request's body is unknown."""
invalid = _of_code(422)
"""422: the request is well formed but fails validation."""


def not_found(resource: str, name: str) -> StatusError:
    """404 for an object. `resource` is a group resource such as "services" or "endpointslices.discovery.k8s.io"."""
    kind, _, group = resource.partition(".")
    return StatusError(404, "NotFound", f'{resource} "{name}" not found', _details(name, group, kind))


def request_timeout(message: str) -> StatusError:
    """408: the client has not sent its complete request in time."""
    return StatusError(408, "Timeout", message)


def continue_expired(anew: str) -> StatusError:
    """410: the list that the client was paging through is gone. The token `anew` continues with a newer list."""
    message = (
        "The provided continue parameter is too old to display a consistent list result. You can start a new list "
        "without the continue parameter, or use the continue token in this response to retrieve the remainder of the "
        "results. Continuing with the provided token results in an inconsistent list - objects that were created, "
        "modified, or deleted between the time the first chunk was returned and now may show up in the list."
    )
    return StatusError(410, "Expired", message, continue_token=anew)


def entity_too_large(message: str) -> StatusError:
    """413: the body exceeds the limit."""
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: {message}")


def invalid_fields(group: str, kind: str, name: str, causes: list[Cause]) -> StatusError:
    """422 for an object or options of a kind, with all causes (apimachinery, NewInvalid)."""
    texts = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    why = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    qualified = f"{kind}.{group}" if group else kind
    details = _details(name, group, kind) | {"causes": _listed(causes)}
    return StatusError(422, "Invalid", f'{qualified} "{name}" is invalid: {why}', details)


def too_many_requests(message: str, retry_after: int) -> StatusError:
    """429: the client may retry after `retry_after` seconds."""
    return StatusError(429, "TooManyRequests", message, {"retryAfterSeconds": retry_after}, retry_after)


def internal(message: str) -> StatusError:
    """500: a fault of the server itself."""
    return StatusError(
        500, "InternalError", f"Internal error occurred: {message}", {"causes": [{"message": message}]}
    )


def unavailable(message: str, retry_after: int | None = None) -> StatusError:
    """503: no server can answer now. `retry_after` is in seconds; without it, clients fail at once instead of
    waiting."""
    details = {} if retry_after is None else {"retryAfterSeconds": retry_after}
    return StatusError(503, "ServiceUnavailable", message, details, retry_after)


def timeout(message: str) -> StatusError:
    """504: the answer did not come in time. A write may have happened nevertheless."""
    return StatusError(504, "Timeout", f"Timeout: {message}")


def too_large_version(wanted: int, current: int) -> StatusError:
    """504 for a resourceVersion that is newer than the server's. Reflectors know this cause (apiserver,
    NewTooLargeResourceVersionError)."""
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    message = f"Timeout: Too large resource version: {wanted}, current: {current}"
    return StatusError(504, "Timeout", message, details, 1)


def parse_status(body: bytes, code: int) -> StatusError:
    """Parse an error response of a server with this HTTP code. Never raises.

    A JSON Status is kept as it is. Any other body (a proxy's page, a protobuf Status, a truncated body) becomes an
    error with that code, whose message quotes at most MAX_QUOTED characters, so that no foreign body is logged in
    full.
    """
    try:
        status = orjson.loads(body)
    except orjson.JSONDecodeError:
        status = None
    if not isinstance(status, dict) or status.get("kind") != "Status":
        return _generic(body, code)
    said, details = status.get("code"), status.get("details")
    details = details if isinstance(details, dict) else {}
    delay = details.get("retryAfterSeconds")
    return StatusError(
        said if isinstance(said, int) and 400 <= said <= 599 else code,
        _text(status.get("reason")),
        _text(status.get("message")),
        details,
        delay if isinstance(delay, int) and not isinstance(delay, bool) and delay > 0 else None,
    )


def _details(name: str, group: str, kind: str) -> dict[str, Any]:
    named = {"name": name, "group": group, "kind": kind}
    return {field: value for field, value in named.items() if value}


def _listed(causes: list[Cause]) -> list[dict[str, str]]:
    return [{"reason": reason, "message": message, "field": field} for reason, field, message in causes]


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _generic(body: bytes, code: int) -> StatusError:
    # Four bytes are the longest character, so this holds MAX_QUOTED of them without decoding a large body.
    text = body[: 4 * MAX_QUOTED].decode(errors="replace")
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())[:MAX_QUOTED]
    message = f"the server responded with the status code {code} but did not return more information"
    return StatusError(code, REASONS.get(code, ""), f"{message}: {text}" if text else message)
