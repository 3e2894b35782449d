"""Where people look: the dashboard that is named or runs here, and Prefect's UI."""

import subprocess
import sys
from pathlib import Path

import pytest

from evalflows.prefect_server import prefect_ui
from evalflows.specs.dashboard_address import dashboard_url, note_dashboard

ROOT, URL = "/stores/one", "http://127.0.0.1:4280"
NAMES = ("EVALFLOWS_DASHBOARD_URL", "PREFECT_UI_URL", "PREFECT_API_URL")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("EVALFLOWS_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_a_dashboard_is_known_while_it_runs_and_for_its_store_only() -> None:
    assert dashboard_url(ROOT) is None
    with note_dashboard(ROOT, URL):
        assert dashboard_url(ROOT) == URL
        assert dashboard_url("/stores/two") is None
        with note_dashboard(ROOT, "http://127.0.0.1:4281"):
            assert dashboard_url(ROOT) == URL, "the first one's note"
    assert dashboard_url(ROOT) is None


def test_the_note_of_a_killed_dashboard_counts_no_more(home: Path) -> None:
    program = f"""
import os, signal
from evalflows.specs.dashboard_address import note_dashboard
with note_dashboard({ROOT!r}, {URL!r}):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", program]).returncode == -9
    assert [path.read_text() for path in (home / "dashboards").iterdir()] == [URL]
    assert dashboard_url(ROOT) is None
    with note_dashboard(ROOT, "http://localhost:1"):
        assert dashboard_url(ROOT) == "http://localhost:1"


def test_without_a_home_a_dashboard_serves_all_the_same(home: Path) -> None:
    home.write_text("no folder")
    with note_dashboard(ROOT, URL):
        assert dashboard_url(ROOT) is None


def test_the_named_dashboard_comes_first_and_what_is_no_address_is_said_and_gives_no_link(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for given in ("https://evals.example.com/", "http://[::1]:4280"):
        monkeypatch.setenv("EVALFLOWS_DASHBOARD_URL", given)
        with note_dashboard(ROOT, URL):
            assert dashboard_url(ROOT) == given.rstrip("/")
    for given in (
        *("javascript:alert(1)", "https://", "https://ada:secret@example.com", "http://x\n"),
        *("http://x/) [y](javascript:alert(1)", "http://[", "http://x/?a=b"),
    ):
        monkeypatch.setenv("EVALFLOWS_DASHBOARD_URL", given)
        assert dashboard_url(ROOT) is None
        error = capsys.readouterr().err
        assert error.startswith("evalflows: EVALFLOWS_DASHBOARD_URL: got ") and error.count("\n") == 1


def test_prefects_ui_is_where_prefect_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert prefect_ui() is None, "no server runs here"
    cloud = "https://api.prefect.cloud/api/accounts/a-1/workspaces/w-1"
    for name, given, ui in (
        ("PREFECT_UI_URL", "https://prefect.example.com/", "https://prefect.example.com"),
        ("PREFECT_UI_URL", "javascript:alert(1)", None),
        ("PREFECT_API_URL", "http://127.0.0.1:4200/api", "http://127.0.0.1:4200"),
        ("PREFECT_API_URL", cloud, "https://app.prefect.cloud/account/a-1/workspace/w-1"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(name, given)
            assert prefect_ui() == ui
