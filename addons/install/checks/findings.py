"""Findings of the doctor: one line for each check, with a remedy for each problem."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """Results of a check."""

    OK = "ok"
    WARNING = "warning"
    """The hub works now, but a later failure is likely, or some components cannot use it."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check, with the observation and the remedy as text."""

    check: str
    severity: Severity
    text: str

    def __str__(self) -> str:
        return f"{self.severity:<8} {self.check:<12} {self.text}"


def ok(check: str, text: str) -> Finding:
    return Finding(check, Severity.OK, text)


def warning(check: str, text: str) -> Finding:
    return Finding(check, Severity.WARNING, text)


def failed(check: str, text: str) -> Finding:
    return Finding(check, Severity.FAILED, text)


def has_failed(findings: Iterable[Finding]) -> bool:
    return any(finding.severity is Severity.FAILED for finding in findings)
