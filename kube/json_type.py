"""The type of a JSON object once it is parsed."""

from typing import Any

type Json = dict[str, Any]
"""An API object in JSON. Its values have any JSON type: a reader checks the type that it expects."""
