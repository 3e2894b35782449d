"""What people call the version of an application: the given one, else its git commit by tag or subject."""

import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from evalflows.reports.names import COMMIT

MOST_OF_SUBJECT = 48
"""Characters of a commit's subject that are shown."""


@dataclass(frozen=True, slots=True)
class Version:
    """A version in short, such as `v7` or `3c8b694`, and of a commit without a tag its subject."""

    short: str
    subject: str = ""

    @property
    def text(self) -> str:
        """Both, with the begin of a long subject."""
        is_long = len(self.subject) > MOST_OF_SUBJECT
        return f"{self.short} {self.subject[:MOST_OF_SUBJECT]}{'…' if is_long else ''}".strip()


def versions_of(experiments: Iterable[tuple[str, str | None, str | None]]) -> dict[str, Version]:
    """Return the version of each experiment that has one, given as id, version and git commit.

    Tags and subjects are those of the checkout that contains the current folder, if it has the commit.
    """
    rows = list(experiments)
    commits = sorted({commit for _, given, commit in rows if commit and not given})
    named = _named(tuple(commits)) if commits else {}
    return {
        identity: Version(given) if given else named.get(commit or "", Version((commit or "")[:COMMIT]))
        for identity, given, commit in rows
        if given or commit
    }


@lru_cache(maxsize=64)
def _named(commits: tuple[str, ...]) -> Mapping[str, Version]:
    asked = ["git", "log", "--no-walk=unsorted", "--ignore-missing", "--decorate=full", "--format=%H%x00%D%x00%s"]
    try:
        done = subprocess.run([*asked, *commits, "--"], capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}
    found = {}
    for line in done.stdout.splitlines():
        commit, references, subject = line.split("\0", 2)
        tags = [ref.strip().removeprefix("tag: refs/tags/") for ref in references.split(",") if "refs/tags/" in ref]
        found[commit] = Version(tags[0]) if tags else Version(commit[:COMMIT], subject)
    return found
