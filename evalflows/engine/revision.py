"""The git checkout that contains the current folder."""

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
    # one call, since starting git takes longer than its work; reports and results are no changes
    status = _git("status", "--porcelain=v2", "--branch", "--untracked-files=no")
    if status is None:  # none here, or it took too long
        return Revision(git_commit())
    lines = status.splitlines()
    said = dict(line.removeprefix("# ").split(" ", 1) for line in lines if line.startswith("# "))
    if (commit := said.get("branch.oid", "(initial)")) == "(initial)":
        return Revision()
    branch = "HEAD" if said["branch.head"] == "(detached)" else said["branch.head"]
    return Revision(commit, branch, dirty=len(said) < len(lines))


def git_commit() -> str | None:
    """Return the commit of that checkout alone, without a look at its files; None outside of one."""
    return _git("rev-parse", "HEAD")


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
