"""A web page of somebody else, in a real browser, against the dashboard: it reads, runs and changes nothing."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, urlsplit

import dashboards
import pytest
from production import produce, trace, trace_id
from running_up import until
from selenium.webdriver import Chrome
from starlette.types import Message, Receive, Scope, Send

from evalflows.dashboard.app import application
from evalflows.store.store import Store

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PAGE = """<!doctype html><title>prizes</title><a id="link" href="%s">a prize</a><div id="here"></div>
<script>
const addresses = %s, here = document.getElementById("here");
async function told(request) {
  try { const answer = await request(); return [answer.type, answer.status, await answer.text()]; }
  catch (error) { return String(error); }
}
function loaded(tag, address, name) {
  return new Promise(resolve => {
    const element = document.createElement(tag);
    element.onload = () => resolve(tag === "iframe" ? `frame of ${element.contentDocument}` : "loaded");
    element.onerror = () => resolve("error");
    if (tag === "link") element.rel = "stylesheet";
    element[name] = address;
    here.append(element);
  });
}
function sent(address, method) {
  return new Promise(resolve => {
    const frame = document.createElement("iframe"), form = document.createElement("form");
    frame.name = `frame${here.childElementCount}`;
    Object.assign(form, {action: address, method, target: frame.name});
    here.append(frame, form);
    frame.onload = () => resolve(`frame of ${frame.contentDocument}`);
    form.submit();
  });
}
async function attack() {
  const results = {};
  for (const address of addresses) results[address] = [
    await loaded("img", address, "src"), await loaded("script", address, "src"), await loaded("link", address, "href"),
    await loaded("iframe", address, "src"), await sent(address, "post"),
    await told(() => fetch(address)), await told(() => fetch(address, {credentials: "include"})),
    await told(() => fetch(address, {mode: "no-cors"})),
    await told(() => fetch(address, {method: "POST", mode: "no-cors", body: "{}"})),
    await told(() => fetch(address, {method: "POST", headers: {"content-type": "application/json"}, body: "{}"})),
    navigator.sendBeacon(address, "{}"),
  ];
  await new Promise(resolve => setTimeout(resolve, 500));  // the beacons have no answer
  window.results = results;
}
attack();
</script>"""
FAILED = "TypeError: Failed to fetch"
NOTHING = ["error", "error", "error", "frame of null", "frame of null", *[FAILED] * 5, True]
"""What a page gets of each of its ways to ask."""


@contextmanager
def served(store: Store) -> Iterator[tuple[str, list[tuple[str, str, int]]]]:
    """Serve the dashboard, and yield its URL and what it has answered: method, address and status."""
    dashboard, answered = application(store), list[tuple[str, str, int]]()

    async def recorded(scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                address = f"{scope['path']}?{scope['query_string'].decode()}"
                answered.append((scope["method"], address, message["status"]))
            await send(message)

        await dashboard(scope, receive, sending)

    with dashboards.served(recorded) as url:
        yield url, answered


@contextmanager
def other_server(folder: Path) -> Iterator[int]:
    """Serve a folder at another port, which is yielded."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def files(store: Store) -> dict[str, tuple[int, int]]:
    """The files of a store, with their sizes and times."""
    paths = [path for path in Path(store.layout.root).rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in paths}


def test_a_foreign_page_reads_runs_and_changes_nothing(browser: Chrome, store: Store, tmp_path: Path) -> None:
    produce(store, trace("a", "in a", "out a", version="1.4"), trace("b", "in b", "out b", version="1.5", minute=1))
    forged = f"{store.layout.root}/forged.parquet"
    copies = f"true)), written as (copy (select 42 as x) to '{forged}'), others as (select * from traces where (true"
    traces = "/production/traces"
    paths = [
        f"{traces}?where={quote(copies)}",
        traces,
        f"{traces}/{trace_id('a')}",
        "/experiments",
        "/review",
        "/health",
    ]
    (tmp_path / "pages").mkdir()

    def text() -> str:
        return str(browser.execute_script("return document.body?.innerText ?? ''"))

    with served(store) as (url, answered), other_server(tmp_path / "pages") as port:
        browser.get(url + traces)  # the user uses the dashboard in the same browser
        addresses = [url + path for path in paths]
        (tmp_path / "pages" / "page.html").write_text(PAGE % (addresses[0], json.dumps(addresses)))
        before = files(store)
        answered.clear()
        for site in ("127.0.0.1", "rebound.test"):  # of the same site, and of another
            browser.get(f"http://{site}:{port}/page.html")
            results = until(lambda: browser.execute_script("return window.results"), 60)
            assert results == dict.fromkeys(addresses, NOTHING)
            assert {status for *_, status in answered} == {403}
            assert {method for method, *_ in answered} >= {"GET", "POST"}
            assert {address for _, address, _ in answered} >= {path if "?" in path else f"{path}?" for path in paths}
            answered.clear()
            browser.find_element("id", "link").click()
            until(lambda: "has not been run" in text(), 20)
            assert answered[0][2] == 200
            assert copies in text()
            assert browser.find_element("name", "where").get_attribute("value") == copies
            answered.clear()
        browser.get(f"http://rebound.test:{urlsplit(url).port}{traces}")  # DNS rebinding: the same origin now
        assert browser.find_element("tag name", "body").text.startswith("evalflows: got another host name")
        assert files(store) == before

        browser.get(f"{url}{traces}?where={quote('version = ' + repr('1.4'))}")  # the user's own bookmark
        assert "has not been run" in text()
        (proof,) = {one.get_attribute("value") for one in browser.find_elements("name", "proof")}
        browser.find_element("css selector", "form.filter button").click()
        until(lambda: "has not been run" not in text() and browser.find_elements("css selector", "tbody tr"), 20)
        rows = browser.find_elements("css selector", "tbody tr")
        assert [trace_id("a") in (row.get_attribute("innerHTML") or "") for row in rows] == [True]
        assert str(proof) not in browser.current_url
        browser.refresh()
        assert len(browser.find_elements("css selector", "tbody tr")) == 1
    assert not Path(forged).exists()
