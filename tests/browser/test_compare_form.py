"""A comparison started in Prefect's UI, in a real browser: the form filled in, the run completed, the page of it."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from forms import fill, find, how_it_ended, open_artifact, open_form, picture, submit, value
from prefect_database import give_database_to
from running_up import EVALFLOWS, Up, running_up
from selenium.webdriver import Chrome

from evalflows.specs.comparison import load_comparison

pytestmark = [pytest.mark.browser, pytest.mark.slow]

NAME = "Name (Optional)"
ROOT = Path(__file__).parents[2]
N = 12
ROWS = [{"id": i, "inputs": {"question": f"Question {i}"}} for i in range(N)]
MODULE = """
def lower(question):
    return question.lower()

def upper(question):
    return question.upper()

def twice(question):
    return question * 2

def shorter(outputs):
    first, second = (len(one["output"]) for one in outputs)
    return [second, first]

def louder(outputs):
    return [int(one["output"].isupper()) for one in outputs]
"""
SPEC = {
    "name": "small",
    "dataset": {"path": "rows.jsonl"},
    "targets": [{"kind": "python", "name": one, "function": f"mine:{one}"} for one in ("lower", "upper", "twice")],
}
COMPARISON = {
    "name": "pairs",
    "experiments": ["small-lower", "small-twice", "small-upper"],
    "evaluators": "mine:shorter",
    "both_orders": True,
}
PREFECT_YAML = """
pull:
  - prefect.deployments.steps.set_working_directory: {directory: .}
deployments:
  - name: mine
    entrypoint: evalflows.flows.compare_experiments.compare_experiments
    build:
      - evalflows.flows.deployments.comparison_spec_of: {file: comparison.yaml}
    parameters: {spec: "{{ spec }}", resume: null}
    work_pool: {name: evalflows, job_variables: {working_dir: .}}
"""


@pytest.fixture(scope="module")
def up(chromium: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A server and a worker in a user's folder, in the store of which are three experiments."""
    place, home = tmp_path_factory.mktemp("folder"), give_database_to(tmp_path_factory.mktemp("prefect"))
    (place / "rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    (place / "mine.py").write_text(MODULE)
    for name, content in (("spec", SPEC), ("comparison", COMPARISON)):
        (place / f"{name}.yaml").write_text(yaml.safe_dump(content))
    (place / "prefect.yaml").write_text(PREFECT_YAML)
    store = {"EVALFLOWS_STORE": str(place / "kept"), "EVALFLOWS_SPOOL": str(place / "spool")}
    own = {"EVALFLOWS_HOME": str(home), "PREFECT_API_URL": "", **store}
    with running_up(place, "--port", "0", environment=own) as one:
        there = os.environ | own | one.environment
        subprocess.run([EVALFLOWS, "run", "spec.yaml"], cwd=place, env=there, check=True, capture_output=True)
        yield one


def test_a_comparison_is_started_in_the_form(browser: Chrome, up: Up, screenshots: Path) -> None:
    open_form(browser, up, "mine", NAME)
    assert (value(browser, NAME), value(browser, "Use")) == ("pairs", "mine:shorter")
    fill(browser, NAME, "typed in the browser")
    fill(browser, "Use", "mine:louder")
    picture(browser, screenshots / "form-compare.png", height=5800)
    submit(browser)
    assert how_it_ended(browser) == "Completed"
    picture(browser, screenshots / "run-compare.png")
    open_artifact(browser, "comparison")
    find(browser, "//table[contains(., 'louder')]")
    picture(browser, screenshots / "artifact-compare.png")
    rows = [" ".join(row.text.split()) for row in browser.find_elements("xpath", "//table//tr")]
    assert "win rate p p adjusted verdict" in rows[0]
    won = "louder small-upper small-lower all 100% [76%, 100%] <0.001 0.001 better 12 0 0 0"
    assert won in rows, rows
    assert any(row.startswith("louder 1 [1, ") and " small-upper " in row for row in rows), rows
    assert find(browser, "//a[normalize-space(.)='typed in the browser']")


def test_the_form_of_what_ships_is_filled_in(browser: Chrome, up: Up, screenshots: Path) -> None:
    own = os.environ | up.environment
    subprocess.run([EVALFLOWS, "deploy"], cwd=ROOT, env=own, check=True, capture_output=True)
    open_form(browser, up, "compare", NAME)
    picture(browser, screenshots / "form-compare-demo.png", height=5800)
    spec = load_comparison(ROOT / "data" / "comparisons" / "demo.yaml")
    (judge,) = spec.evaluators
    assert value(browser, NAME) == spec.name
    assert value(browser, "Description (Optional)") == spec.description
    assert (value(browser, "Use"), json.loads(value(browser, "Args (Optional)"))) == (judge.use, judge.args)
