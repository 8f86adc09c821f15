"""The type of a JSON object once it is parsed."""

from typing import Any

type Json = dict[str, Any]
"""An object of the API as JSON has it: its values are of any JSON type, so who reads one says what it expects."""
