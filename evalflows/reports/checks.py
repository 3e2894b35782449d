"""Checks of snapshots and results in words, as a page of Markdown and as a document."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from evalflows.reports.formats import code, escaped
from evalflows.specs.frozen import dataclass
from evalflows.store.records import CheckRow, from_json

MARKS = {True: "ok", False: "**failed**", None: "**not checked**"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedExperiment:
    """An experiment with the checks of its results."""

    experiment_id: str
    name: str
    checks: Sequence[CheckRow]

    @property
    def findings(self) -> list[CheckRow]:
        """The checks that do not hold, or could not be made."""
        return [check for check in self.checks if not check.passed]

    @property
    def errors(self) -> list[CheckRow]:
        """Those of them on which figures depend."""
        return failed(self.checks)

    @property
    def summary(self) -> str:
        """How many of the expectations hold."""
        held = len(self.checks) - len(self.findings)
        return f"{self.name} ({self.experiment_id}): {held} of {len(self.checks)} expectations hold"

    def lines(self) -> list[str]:
        """Return a line for each finding."""
        return [f"{check.severity}: {check.message}" for check in self.findings]

    def document(self) -> dict[str, Any]:
        """Return all checks as values of JSON."""
        return {
            "experiment_id": self.experiment_id,
            "name": self.name,
            "n_expectations": len(self.checks),
            "n_findings": len(self.findings),
            "checks": [_document(check) for check in self.checks],
        }


def failed(checks: Sequence[CheckRow]) -> list[CheckRow]:
    """Return the checks of severity error that did not pass."""
    return [check for check in checks if check.severity == "error" and not check.passed]


def first_of(messages: Sequence[str | None]) -> str:
    """Return the first message, and how many more there are."""
    more = f" (and {len(messages) - 1} more)" if len(messages) > 1 else ""
    return f"{messages[0]}{more}"


def checks_page(what: str, identity: str, checks: Sequence[CheckRow], said: Callable[[CheckRow], str]) -> str:
    """Return a table of checks in Markdown, each with what is `said` of it, below what they are of."""
    lines = [f"| {MARKS[row.passed]} | {row.severity} | {escaped(said(row))} |" for row in checks]
    return "\n".join([f"{what} {code(identity)}", "", "| | severity | check |", "|---|---|---|", *lines])


def _document(check: CheckRow) -> dict[str, Any]:
    fields = asdict(check)
    names = ("check_id", "name", "column_name", "passed", "severity", "n_checked", "n_unexpected", "message")
    values = {name: from_json(fields[name]) for name in ("observed", "expected")}
    return {name: fields[name] for name in names} | values
