"""The git checkout that contains the current folder."""

import subprocess
from pathlib import Path

from evalflows.specs.frozen import dataclass


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


def git_commit(folder: Path | None = None) -> str | None:
    """Return the commit of that checkout, or of the one that contains a folder, without a look at its files; None
    outside of one."""
    return _git("rev-parse", "HEAD", folder=folder)


def committed_text(path: Path) -> str | None:
    """Return the text of a file at the commit of its checkout; None if that does not have it."""
    return _git("show", f"HEAD:./{path.name}", folder=path.parent)


def differs_from_commit(path: Path) -> bool:
    """Return whether a file is not the one at the commit of its checkout; False if that does not have it."""
    blobs = (("rev-parse", "--verify", f"HEAD:./{path.name}"), ("hash-object", "--", path.name))
    committed, here = (_git(*command, folder=path.parent) for command in blobs)
    return None not in (committed, here) and here != committed


def _git(*arguments: str, folder: Path | None = None) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=10, check=True, cwd=folder)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
