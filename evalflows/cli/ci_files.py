"""Files that a gate writes for CI: a summary, JUnit, and a page."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from evalflows.cli.late_commands import json_document
from evalflows.cli.show import links_here
from evalflows.reports.markdown_pages import GateReport, gate_page
from evalflows.specs.errors import InputError
from evalflows.specs.frozen import dataclass
from evalflows.store.exports import write_whole
from evalflows.store.store import Store

Command = TypeVar("Command", bound=Callable[..., Any])

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
"""The environment variable with which GitHub names the file of a step's summary."""

FROM_ENVIRONMENT = f"${STEP_SUMMARY}"
"""The value of `--summary` without a file."""

_OPTIONS = (
    click.option(
        "--junit", metavar="FILE", help="Also write a JUnit report: a testsuite per gate, a testcase per rule."
    ),
    click.option(
        "--evidence",
        metavar="FILE",
        help="Also write the evidence of the decisions, which `verify` checks without a store.",
    ),
    click.option("--sign-evidence", "key", metavar="KEY", help="Sign the evidence with this SSH key."),
    click.option("--json", metavar="FILE", help="Also write everything as one JSON document."),
    click.option(
        "--summary",
        metavar="FILE",
        is_flag=False,
        flag_value=FROM_ENVIRONMENT,
        help=f"Also append the decisions in Markdown to FILE; without FILE, to the file that {STEP_SUMMARY} names.",
    ),
)


def with_ci_files(command: Command) -> Command:
    """Add the options that name the files; the command gets them as `CiFiles.of` does."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True, kw_only=True)
class CiFiles:
    """Paths of the files; None: not wanted."""

    junit: Path | None
    json: Path | None
    summary: Path | None
    evidence: Path | None
    key: Path | None  # which signs the evidence

    @classmethod
    def of(
        cls, *, junit: str | None, json: str | None, summary: str | None, evidence: str | None, key: str | None
    ) -> "CiFiles":
        """Return the files that options name. Raise InputError if one cannot be written there."""
        given = summary
        page = os.environ.get(STEP_SUMMARY) if given == FROM_ENVIRONMENT else given
        if given == FROM_ENVIRONMENT and not page:
            raise InputError(f"--summary: got no file, and {STEP_SUMMARY} is not set; wanted --summary FILE")
        if key is not None and evidence is None:
            raise InputError("--sign-evidence: wanted --evidence FILE too")
        files = cls(junit=_path(junit), json=_path(json), summary=_path(page), evidence=_path(evidence), key=_path(key))
        for option, path in files._named():
            _check(option, path)
        return files

    def write(self, store: Store | None, report: GateReport, *, is_kept: bool = True) -> None:
        """Write the files: each whole or not at all, and the summary at the end of its file. Evidence needs a store.

        Raise InputError if one cannot be written.
        """
        if self.junit:
            from evalflows.reports.junit import junit  # late: it loads the parser of XML

            write_whole(self.junit, junit(report.decisions, report.incomplete, is_kept=is_kept))
        if self.json:
            write_whole(self.json, json_document(report.document))
        if self.evidence and store is not None:
            from evalflows.api.evidence import evidence_of  # late: the other files need no statistics

            ids = [decision.decision_id for decision in report.decisions]
            write_whole(self.evidence, json_document(evidence_of(store, ids, self.key)))
        if self.summary:
            _append(self.summary, gate_page(report, links_here().page if is_kept else None))

    def _named(self) -> Iterator[tuple[str, Path]]:
        named = {"--junit": self.junit, "--json": self.json, "--summary": self.summary, "--evidence": self.evidence}
        for option, path in named.items():
            if path is not None:
                yield option, path


def _path(name: str | None) -> Path | None:
    return None if name is None else Path(name)


def _check(option: str, path: Path) -> None:
    """Find before anything is paid what can be found of a file that cannot be written."""
    if path.is_dir():
        raise InputError(f"{option}: got {str(path)!r}, which is a folder, wanted a file")
    if not path.parent.is_dir():
        raise InputError(f"{option}: got {str(path)!r}, wanted a file in a folder that exists")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{option}: got {str(path)!r}, wanted a folder that can be written")


def _append(path: Path, text: str) -> None:
    try:
        with path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(f"{text}\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
