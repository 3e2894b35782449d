"""An experiment without a version is called by its commit's tag, or by the commit and its subject."""

import subprocess
from pathlib import Path

import pytest

from evalflows.reports.names import Version, versions_of


def test_a_version_is_the_given_one_else_a_tag_else_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> str:
        who = ("-c", "user.name=ann", "-c", "user.email=ann@example.com")
        return subprocess.run(["git", *who, *arguments], check=True, capture_output=True, text=True).stdout.strip()

    monkeypatch.chdir(tmp_path)
    git("init", "-q")
    commits = []
    for subject in ("Fix the prompt", "Release"):
        git("commit", "-q", "--allow-empty", "-m", subject)
        commits.append(git("rev-parse", "HEAD"))
    git("tag", "v7")
    first, tagged = commits
    unknown = "0" * 40
    found = versions_of(
        [("a", "2.0", first), ("b", None, first), ("c", None, tagged), ("d", None, unknown), ("e", None, None)]
    )
    assert found == {
        "a": Version("2.0"),
        "b": Version(first[:7], "Fix the prompt"),
        "c": Version("v7"),
        "d": Version(unknown[:7]),
    }
