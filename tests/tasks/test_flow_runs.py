"""What Prefect shows of a flow run."""

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from evalflows.reports import names
from evalflows.tasks.progress import _is_random, version_of


def test_a_typed_name_is_told_from_one_of_prefect() -> None:
    assert all(map(_is_random, ("", "brave-beetle", "alpha3-cancri-ring", "omega-canis-majoris")))
    assert not any(map(_is_random, ("new-prompt", "hotfix 12", "alpha", "release-2.4")))


def test_its_version_is_the_given_one_else_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def versions() -> list[str]:
        given = (("v7", "v7"), ("v6", "v7"), (None, None), (None, "v7"), ())
        return [version_of([SimpleNamespace(version=version) for version in some]) for some in given]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert versions() == ["v7", "", "", "", ""]
    user = ("-c", "user.name=ann", "-c", "user.email=ann@example.org")
    for command in (["init", "-q"], [*user, "commit", "-q", "--allow-empty", "-m", f"Shorter {'prompt ' * 9}"]):
        subprocess.run(["git", *command], check=True)
    hashed = subprocess.run(["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    assert versions() == ["v7", "", f"{hashed[:7]} Shorter {'prompt ' * 5}promp…", "", ""]
    subprocess.run(["git", "tag", "v8"], check=True)
    names._named.cache_clear()
    assert versions()[2] == "v8"
