"""The identity whose rights a request to the cloud has, and the credential that proves it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class CloudIdentity:
    """The hub, or the user of one token. A user always has a token; only the hub's identity has none."""

    user: str
    """The user that the cloud's SelfSubjectReview returns, with groups, uid and extra; "" for the hub."""
    authorization: str = field(default="", repr=False, compare=False)
    """The user's own Authorization header; "" for the hub. Not compared: tokens rotate, so two tokens can be one
    identity.
    """

    def __post_init__(self) -> None:
        if bool(self.user) is not bool(self.authorization):
            raise ValueError("a client without a token must have the hub's identity")

    @property
    def is_hub(self) -> bool:
        return not self.user


HUB_IDENTITY = CloudIdentity("")
