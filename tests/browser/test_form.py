"""A run started in Prefect's UI, in a real browser: the form filled in, the run completed, its result on the page."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest
import yaml
from running_up import EVALFLOWS, Up, ask, prefect_yaml, running_up, until
from selenium import webdriver
from selenium.common.exceptions import ElementClickInterceptedException, StaleElementReferenceException
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.remote.webelement import WebElement

from specs.experiment import load_experiment

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("browser")]

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
SPEC = {
    "name": "small",
    "dataset": {"path": "rows.jsonl"},
    "targets": [{"kind": "python", "function": "mine:lower"}],
    "evaluators": ["exact_match"],
}
MODULE = """
def upper(question):
    return question.upper()

def lower(question):
    return question.lower()
"""
PREFECT_YAML = prefect_yaml("mine")
HOW_IT_ENDED = (
    "//*[contains(@class, 'page-heading-flow-run')]//*[contains(@class, 'state-badge')]"
    "[normalize-space(.) and contains('Completed Failed Crashed Cancelled', normalize-space(.))]"
)
ROWS = [{"id": i, "inputs": {"question": f"q{i}"}, "outputs": {"answer": f"Q{i}"}} for i in range(3)]
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
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


@pytest.fixture(scope="module")
def chromium() -> tuple[str, str]:
    """Debian's Chromium and its driver. Skips where there are none, fails where there have to be."""
    programs = shutil.which("chromium"), shutil.which("chromedriver")
    if not all(programs):
        give_up = pytest.fail if os.environ.get("EVALFLOWS_REQUIRE_BROWSER") == "1" else pytest.skip
        give_up("no chromium and chromedriver here: apt-get install chromium chromium-driver")
    return str(programs[0]), str(programs[1])


@pytest.fixture
def browser(chromium: tuple[str, str], tmp_path: Path) -> Iterator[Chrome]:
    """A browser that nobody has used, and that reaches this machine only."""
    options = webdriver.ChromeOptions()
    options.binary_location, driver = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path / 'chromium'}"):
        options.add_argument(flag)
    with webdriver.Chrome(options=options, service=webdriver.ChromeService(driver)) as chrome:
        yield chrome


@pytest.fixture
def screenshots(tmp_path: Path) -> Path:
    """Where the pictures go, for who wants to look at them."""
    folder = Path(os.environ.get("EVALFLOWS_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def up(chromium: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A server and a worker in a user's folder: rows, a module, a spec, and a prefect.yaml with a deployment of it."""
    place, home = tmp_path_factory.mktemp("folder"), tmp_path_factory.mktemp("prefect")
    (place / "rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    (place / "mine.py").write_text(MODULE)
    (place / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    (place / "prefect.yaml").write_text(PREFECT_YAML)
    with running_up(place, "--port", "0", environment={"PREFECT_HOME": str(home), "PREFECT_API_URL": ""}) as one:
        yield one


def test_a_run_is_started_in_the_form(browser: Chrome, up: Up, screenshots: Path) -> None:
    open_form(browser, up, "mine")
    assert value(browser, "Name") == "small"
    fill(browser, "Name", "typed in the browser")
    fill(browser, "Targets", json.dumps({"kind": "python", "name": "shouting", "function": "mine:upper"}))
    picture(browser, screenshots / "form.png", height=5800)
    steady(lambda: find(browser, "//button[normalize-space(.)='Submit']").click())
    until(lambda: not browser.current_url.endswith("/run"), 60)

    steady(lambda: find_reloading(browser, "//a[contains(@href, '/runs/flow-run/')]").click())
    assert steady(lambda: find_reloading(browser, HOW_IT_ENDED).text) == "Completed"
    picture(browser, screenshots / "run.png")
    steady(lambda: find(browser, "//li[normalize-space(.)='Artifacts']").click())
    result = "//a[contains(@href, '/artifacts/')][.//*[normalize-space(text())='result']]"
    steady(lambda: find(browser, result).click())
    find(browser, "//table[contains(., 'exact_match')]")
    rows = [" ".join(row.text.split()) for row in browser.find_elements("xpath", "//table//tr")]
    picture(browser, screenshots / "artifact.png")
    assert "verdict" in rows[0]
    assert any(row.startswith("shouting exact_match 1.000") for row in rows), rows
    assert find(browser, "//a[normalize-space(.)='typed in the browser']")


def test_the_form_of_the_demo_is_filled_in(browser: Chrome, up: Up, screenshots: Path, tmp_path: Path) -> None:
    own = os.environ | {"PREFECT_API_URL": up.url}
    subprocess.run([EVALFLOWS, "deploy"], cwd=tmp_path, env=own, check=True, capture_output=True)
    open_form(browser, up, "demo")
    picture(browser, screenshots / "form-demo.png", height=8000)
    demo = load_experiment(ROOT / "data" / "experiments" / "demo.yaml")
    for label, given in (
        ("Name", demo.name),
        ("Description (Optional)", demo.description),
        ("Path (Optional)", demo.dataset.path),
        ("Use", demo.evaluators[0].use),
    ):
        assert value(browser, label) == given
    assert json.loads(value(browser, "Targets")) == demo.targets[0].model_dump(mode="json")


def open_form(browser: Chrome, up: Up, deployment: str) -> None:
    """The page on which a run of a deployment is made, with parameters to be changed."""
    (found,) = ask(up.url, "/deployments/filter", deployments={"name": {"any_": [deployment]}})
    browser.get(f"{up.ui}/deployments/deployment/{found['id']}/run")
    until(lambda: value(browser, "Name"), 60)


def find(browser: Chrome, path: str, seconds: float = 60) -> WebElement:
    """The first element at an XPath, when it is shown."""

    def shown() -> WebElement | None:
        with suppress(StaleElementReferenceException):
            return next((one for one in browser.find_elements("xpath", path) if one.is_displayed()), None)
        return None

    return until(shown, seconds)


def find_reloading(browser: Chrome, path: str) -> WebElement:
    """The same on a page that tells what is new only every half minute: it is loaded anew until the element shows."""
    for _ in range(20):
        with suppress(TimeoutError):
            return find(browser, path, seconds=4)
        browser.refresh()
    raise TimeoutError(f"waited in vain for {path}")


def steady(action: Callable[[], T]) -> T:
    """What an action on an element gives; done again where the page was drawn anew in between."""
    for _ in range(9):
        with suppress(StaleElementReferenceException, ElementClickInterceptedException):
            return action()
        time.sleep(0.3)
    return action()


def field(browser: Chrome, label: str) -> WebElement:
    """The first text field of a parameter, by its label."""
    block = "ancestor::*[contains(concat(' ', @class, ' '), ' p-label ')][1]"
    return find(browser, f"//label[normalize-space(.)='{label}']/{block}//textarea")


def value(browser: Chrome, label: str) -> str:
    return str(steady(lambda: field(browser, label).get_property("value")))


def fill(browser: Chrome, label: str, text: str) -> None:
    """Type into a field, over what is there."""
    field(browser, label).send_keys(Keys.CONTROL, "a")
    field(browser, label).send_keys(text)
    assert value(browser, label) == text


def picture(browser: Chrome, path: Path, height: int = 1800) -> None:
    """A screenshot of the page, as high as it wants to be."""
    browser.set_window_size(1400, height)
    time.sleep(1)
    browser.save_screenshot(str(path))
    browser.set_window_size(1400, 1800)
