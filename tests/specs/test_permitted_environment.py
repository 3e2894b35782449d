"""Where the spec of a deployment's run may send environment variables, and which it may use in paths."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from evalflows.specs import permitted
from evalflows.specs.errors import InputError
from evalflows.specs.files import located
from evalflows.specs.permitted import Source, check_sent, may_receive, variable

URL = "https://api.example.com/v1"
KEY = variable("SOME_KEY")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(permitted, "_limits", None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOME_KEY", "rows")
    return tmp_path


def restrict_environment(folder: Path, defined: Mapping[Source, Sequence[str]]) -> None:
    permitted.restrict(folder)
    permitted.restrict_environment(defined)


def allow(folder: Path, text: str) -> None:
    (folder / "pyproject.toml").write_text(f"[tool.evalflows.allowed_environment]\n{text}\n")


@pytest.mark.parametrize("url", [URL, f"{URL}/", f"{URL}/chat/completions", f"{URL}/a?b=../c.d"])
def test_a_key_is_sent_to_the_address_it_is_defined_with(url: str, folder: Path) -> None:
    restrict_environment(folder, {KEY: [f"{URL}/"]})
    check_sent("here", KEY, "SOME_KEY", url)
    assert not may_receive(url, variable("OTHER_KEY"))
    assert not may_receive(url, Source("block", "SOME_KEY"))


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example.com/v1",
        "http://api.example.com/v1",
        "https://api.example.com:8443/v1",
        "https://api.example.com.evil.com/v1",
        "https://api.example.com@evil.com/v1",
        "https://api.example.com\\@evil.com/v1",
        "https://api.example.com/v1evil",
        "https://api.example.com/v1?x=1",
        "https://api.example.com/v1/../evil",
        "https://api.example.com/v1/%2e%2E/evil",
        "https://api.example.com/v1/..\\evil",
        "https://api.example.com",
    ],
)
def test_a_key_is_sent_nowhere_else(url: str, folder: Path) -> None:
    restrict_environment(folder, {KEY: [URL]})
    with pytest.raises(InputError) as refused:
        check_sent("here", KEY, "SOME_KEY", url)
    assert str(refused.value) == (
        f"here: the environment variable SOME_KEY may not be sent to {url!r}; in a deployment's run wanted a shared "
        f'connection with this key and base_url, or SOME_KEY = ["{url.partition("?")[0]}"] under allowed_environment '
        f"of [tool.evalflows] in {folder / 'pyproject.toml'}"
    )


def test_a_secret_block_is_allowed_by_a_connection_only(folder: Path) -> None:
    restrict_environment(folder, {})
    with pytest.raises(InputError) as refused:
        check_sent("here", Source("block", "prod"), "'prod'", URL)
    assert str(refused.value) == (
        f"here: the Secret block 'prod' may not be sent to {URL!r}; in a deployment's run wanted a shared connection "
        "with this key and base_url"
    )


def test_a_pyproject_allows_more(folder: Path) -> None:
    allow(folder, 'SOME_KEY = ["https://support.example.com", "paths"]')
    restrict_environment(folder, {KEY: [URL]})
    for url in (URL, "https://support.example.com", "https://support.example.com/ask"):
        check_sent("here", KEY, "SOME_KEY", url)
    assert located("${SOME_KEY}.jsonl") == Path("rows.jsonl")


@pytest.mark.parametrize("is_set", [True, False])
def test_a_path_uses_no_variable_by_default(is_set: bool, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_set:
        monkeypatch.delenv("SOME_KEY")
    restrict_environment(folder, {KEY: [URL]})
    with pytest.raises(InputError) as refused:
        located("${SOME_KEY}/rows.jsonl")
    assert str(refused.value) == (
        "${SOME_KEY}/rows.jsonl: the environment variable SOME_KEY may not be used in paths; in a deployment's run "
        f'wanted SOME_KEY = ["paths"] under allowed_environment of [tool.evalflows] in {folder / "pyproject.toml"}'
    )


def test_a_list_of_names_is_refused(folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.evalflows]\nallowed_environment = ["SOME_KEY"]\n')
    with pytest.raises(InputError, match=r"got \['SOME_KEY'\], wanted lists of addresses by name"):
        restrict_environment(folder, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('SOME_KEY = "paths"', "SOME_KEY: got 'paths', wanted a list of addresses"),
        ('SOME_KEY = ["*"]', r"SOME_KEY: got \['\*'\], wanted a list of addresses"),
        ('SOME_KEY = ["https://"]', r"SOME_KEY: got \['https://'\], wanted a list of addresses"),
        ('SOME_KEY = ["api.example.com"]', "SOME_KEY: got .* wanted a list of addresses"),
    ],
)
def test_a_wrong_table_is_refused(text: str, message: str, folder: Path) -> None:
    allow(folder, text)
    with pytest.raises(InputError, match=message):
        restrict_environment(folder, {})
