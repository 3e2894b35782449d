"""A web page of somebody else, in a real browser, against the server of `evalflows up`: it gets and starts nothing."""

import json
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml
from forms import find, log_in, picture
from prefect_database import give_database_to
from running_up import Up, prefect_yaml, running_up, until
from selenium.webdriver import Chrome

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SPEC = {
    "name": "small",
    "dataset": {"path": "rows.jsonl"},
    "targets": [{"kind": "python", "function": "mine:upper"}],
}
MODULE = "def upper(question):\n    return question.upper()\n"
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
    place, home = tmp_path_factory.mktemp("folder"), give_database_to(tmp_path_factory.mktemp("prefect"))
    (place / "rows.jsonl").write_text('{"inputs": {"question": "q"}}\n')
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


def test_the_user_logs_in_and_sees_the_deployments(browser: Chrome, up: Up, screenshots: Path) -> None:
    browser.get(up.ui)
    find(browser, "//input[@type='password']")
    log_in(browser, up)
    browser.get(f"{up.ui}/deployments")
    find(browser, "//a[normalize-space(.)='mine']")
    picture(browser, screenshots / "deployments-after-login.png")
