"""A browser for tests of what Prefect's UI shows."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver import Chrome

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1400,1800",
    "--host-resolver-rules=MAP rebound.test 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


@pytest.fixture(scope="module")
def chromium() -> tuple[str, str]:
    """Debian's Chromium and its driver. Skips where there are none, fails where there have to be."""
    programs = shutil.which("chromium"), shutil.which("chromedriver")
    if not all(programs):
        give_up = pytest.fail if os.environ.get("EVALFLOWS_REQUIRE_BROWSER") == "1" else pytest.skip
        give_up("no chromium and chromedriver here: apt-get install chromium chromium-driver")
    return str(programs[0]), str(programs[1])


@contextmanager
def _started(programs: tuple[str, str], folder: Path) -> Iterator[Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location, driver = programs
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in (*FLAGS, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    with webdriver.Chrome(options=options, service=webdriver.ChromeService(driver)) as chrome:
        yield chrome


@pytest.fixture
def browser(chromium: tuple[str, str], tmp_path: Path) -> Iterator[Chrome]:
    """A browser that nobody has used, and that reaches this machine only."""
    with _started(chromium, tmp_path / "chromium") as chrome:
        yield chrome


@pytest.fixture(scope="module")
def shared_browser(chromium: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """Such a browser for all tests of a module, to which the pages of other tests make no difference."""
    with _started(chromium, tmp_path_factory.mktemp("chromium")) as chrome:
        yield chrome


@pytest.fixture
def screenshots(tmp_path: Path) -> Path:
    """Where the pictures go, for who wants to look at them."""
    folder = Path(os.environ.get("EVALFLOWS_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
