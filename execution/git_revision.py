"""The git revision of the user's code."""

import subprocess
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Revision:
    """The state of a git checkout; all None outside of one."""

    commit: str | None = None
    branch: str | None = None
    dirty: bool | None = None


def revision() -> Revision:
    """Return the state of the git checkout that contains the current folder."""
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return Revision()
    status = _git("status", "--porcelain", "--untracked-files=no")  # reports and results are no changes
    return Revision(commit, _git("rev-parse", "--abbrev-ref", "HEAD"), None if status is None else bool(status))


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
