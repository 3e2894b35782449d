"""A run started in Prefect's UI, in a real browser: the form filled in, the run completed, its result on the page."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from forms import fill, find, how_it_ended, open_artifact, open_form, picture, submit, value
from prefect_database import give_database_to
from running_up import EVALFLOWS, Up, prefect_yaml, running_up
from selenium.webdriver import Chrome

from evalflows.specs.experiment import load_experiment

pytestmark = [pytest.mark.browser, pytest.mark.slow]

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
ROWS = [{"id": i, "inputs": {"question": f"q{i}"}, "outputs": {"answer": f"Q{i}"}} for i in range(3)]


@pytest.fixture(scope="module")
def up(chromium: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A server and a worker in a user's folder: rows, a module, a spec, and a prefect.yaml with a deployment of it."""
    place, home = tmp_path_factory.mktemp("folder"), give_database_to(tmp_path_factory.mktemp("prefect"))
    (place / "rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    (place / "mine.py").write_text(MODULE)
    (place / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    (place / "prefect.yaml").write_text(PREFECT_YAML)
    with running_up(place, "--port", "0", environment={"EVALFLOWS_HOME": str(home), "PREFECT_API_URL": ""}) as one:
        yield one


def test_a_run_is_started_in_the_form(browser: Chrome, up: Up, screenshots: Path) -> None:
    open_form(browser, up, "mine")
    assert value(browser, "Name") == "small"
    fill(browser, "Name", "typed in the browser")
    fill(browser, "Targets", json.dumps({"kind": "python", "name": "shouting", "function": "mine:upper"}))
    picture(browser, screenshots / "form.png", height=5800)
    submit(browser)
    assert how_it_ended(browser) == "Completed"
    picture(browser, screenshots / "run.png")
    open_artifact(browser, "result")
    find(browser, "//table[contains(., 'exact_match')]")
    rows = [" ".join(row.text.split()) for row in browser.find_elements("xpath", "//table//tr")]
    picture(browser, screenshots / "artifact.png")
    assert "verdict" in rows[0]
    assert any(row.startswith("shouting exact_match 1.00") for row in rows), rows
    assert find(browser, "//a[normalize-space(.)='typed in the browser']")


def test_the_form_of_the_demo_is_filled_in(browser: Chrome, up: Up, screenshots: Path) -> None:
    own = os.environ | up.environment
    subprocess.run([EVALFLOWS, "deploy"], cwd=ROOT, env=own, check=True, capture_output=True)
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
