"""Prefect's UI on the server of `evalflows up`, in a real browser: a page of somebody else gets and starts nothing, and
the user starts a run in the form."""

import json
import os
import subprocess
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml
from forms import fill, find, how_it_ended, log_in, open_artifact, open_form, picture, submit, value
from homes import prepared
from running_up import EVALFLOWS, Up, prefect_yaml, running_up, until
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
ROWS = [{"id": i, "inputs": {"question": f"q{i}"}, "outputs": {"answer": f"Q{i}"}} for i in range(3)]
PAGE = """<!doctype html><title>prizes</title><iframe name="hidden"></iframe>
<form id="form" method="post" enctype="text/plain" target="hidden"><input name="field"></form>
<script>
const [api, id, body] = %s;
const run = `${api}/deployments/${id}/create_flow_run`;
const untyped = () => new Blob([body]);  // sent without a Content-Type, which Prefect takes for JSON
const credentials = "omit";  // with them, a browser would not even let a server say that every origin may read
async function told(request) {
  try { const answer = await request(); return [answer.type, answer.status, await answer.text()]; }
  catch (error) { return String(error); }
}
function socket(path, protocols) {
  return new Promise(resolve => {
    const one = new WebSocket(api.replace("http", "ws") + path, protocols), got = [];
    one.onopen = () => one.send(JSON.stringify({type: "auth", token: ""}));
    one.onmessage = message => got.push(message.data);
    one.onclose = () => resolve(got);
    setTimeout(() => resolve(["still open", ...got]), 5000);
  });
}
async function attack() {
  const results = {};
  results.reached = await told(() => fetch(`${api}/health`, {mode: "no-cors", credentials}));
  results.listed = await told(() => fetch(`${api}/deployments/filter`, {
    method: "POST", credentials, headers: {"content-type": "application/json"}, body: "{}"}));
  results.listed_simply = await told(() => fetch(`${api}/deployments/filter`, {
    method: "POST", credentials, body: new Blob(["{}"])}));
  results.read = await told(() => fetch(`${api}/flow_runs/count`, {credentials}));
  results.posted = await told(() => fetch(run, {
    method: "POST", credentials, headers: {"content-type": "application/json"}, body}));
  results.untyped = await told(() => fetch(run, {method: "POST", mode: "no-cors", credentials, body: untyped()}));
  results.text = await told(() => fetch(run, {method: "POST", mode: "no-cors", credentials, body}));
  results.beacon = navigator.sendBeacon(run, untyped());
  const form = document.getElementById("form"), [field] = form.elements;
  form.action = run;
  [field.name, field.value] = [body.slice(0, -1) + ', "x": "', '"}'];  // sent as name=value
  form.submit();
  for (const [path, protocols] of [["/events/out", []], ["/events/out", ["prefect"]], ["/events/in", []],
                                   ["/logs/out", ["prefect"]]])
    results[path + protocols] = await socket(path, protocols);
  await new Promise(resolve => setTimeout(resolve, 1000));  // the beacon and the form have no answer
  window.results = results;
}
attack();
</script>"""


@pytest.fixture(scope="module")
def up(chromium: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A server and a worker in a user's folder with a deployment."""
    place, home = tmp_path_factory.mktemp("folder"), prepared(tmp_path_factory.mktemp("prefect"))
    (place / "rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    (place / "mine.py").write_text(MODULE)
    (place / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    (place / "prefect.yaml").write_text(prefect_yaml("mine"))
    with running_up(place, "--port", "0", environment={"EVALFLOWS_HOME": str(home), "PREFECT_API_URL": ""}) as one:
        yield one


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """The folder of another web server on this machine, and its address."""
    folder = tmp_path / "pages"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(folder)))
    Thread(target=server.serve_forever, daemon=True).start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def command_spec(pwned: Path) -> dict[str, Any]:
    """A spec whose target runs a command."""
    return {
        "name": "theirs",
        "dataset": {"rows": [{"inputs": {"cmd": f"touch {pwned}"}}]},
        "targets": [{"kind": "python", "function": "subprocess:getoutput"}],
    }


def results_of(browser: Chrome, address: str) -> dict[str, Any]:
    browser.get(address)
    return dict(until(lambda: browser.execute_script("return window.results"), 60))


def test_a_page_of_another_origin_lists_and_starts_nothing(
    browser: Chrome, up: Up, pages: tuple[Path, str], tmp_path: Path
) -> None:
    log_in(browser, up)  # the user uses the UI in the same browser
    (deployment,) = up.ask("/deployments/filter")
    body = json.dumps({"parameters": {"spec": command_spec(tmp_path / "pwned"), "resume": None}})
    folder, address = pages
    (folder / "page.html").write_text(PAGE % json.dumps([up.url, deployment["id"], body]))
    results = results_of(browser, f"{address}/page.html")
    assert results.pop("reached")[0] == "opaque", "the page did not reach the server"
    assert up.ask("/flow_runs/count") == 0, "the page has started runs"
    assert results.pop("beacon") is True
    refused = "TypeError: Failed to fetch"
    assert {results.pop(name) for name in ("listed", "listed_simply", "read", "posted")} == {refused}
    assert results == {
        "untyped": ["opaque", 0, ""],
        "text": ["opaque", 0, ""],
        "/events/out": [],
        "/events/outprefect": [],
        "/events/in": [],
        "/logs/outprefect": [],
    }
    assert not (tmp_path / "pwned").exists()


def test_a_page_whose_name_now_leads_here_gets_nothing(browser: Chrome, up: Up, tmp_path: Path) -> None:
    log_in(browser, up)
    (deployment,) = up.ask("/deployments/filter")
    browser.get(f"{up.ui.replace('127.0.0.1', 'rebound.test')}/robots.txt")  # DNS rebinding: the same origin now
    asked = """
        const [path, body, done] = arguments;
        fetch(path, {method: "POST", headers: {"content-type": "application/json"}, body})
            .then(async answer => done([answer.status, await answer.text(), localStorage.length]));
    """
    run = json.dumps({"parameters": {"spec": command_spec(tmp_path / "pwned"), "resume": None}})
    for path, body in (("deployments/filter", "{}"), (f"deployments/{deployment['id']}/create_flow_run", run)):
        got = browser.execute_async_script(asked, f"/api/{path}", body)
        assert got == [401, '{"exception_message":"Unauthorized"}', 0]
    assert up.ask("/flow_runs/count") == 0


def test_a_run_is_started_in_the_form(browser: Chrome, up: Up, screenshots: Path) -> None:
    open_form(browser, up, "mine")
    assert value(browser, "Name") == "small"
    fill(browser, "Name", "typed in the browser")
    fill(browser, "Targets", json.dumps({"kind": "python", "name": "shouting", "function": "mine:upper"}))
    picture(browser, screenshots / "form.png", height=5800)
    submit(browser)
    assert how_it_ended(browser, up) == "Completed"
    picture(browser, screenshots / "run.png")
    open_artifact(browser, "result")
    find(browser, "//table[contains(., 'exact_match')]")
    rows = [" ".join(row.text.split()) for row in browser.find_elements("xpath", "//table//tr")]
    picture(browser, screenshots / "artifact.png")
    assert "verdict" in rows[0]
    assert any(row.startswith("shouting exact_match 1.00") for row in rows), rows
    assert find(browser, "//a[normalize-space(.)='typed in the browser']")


@pytest.mark.soak
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
