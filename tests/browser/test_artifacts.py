"""Artifacts in Prefect's UI, in a real browser: names that contain Markdown are shown, and nothing is fetched."""

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from forms import steady
from prefect.artifacts import create_markdown_artifact
from running_up import until
from selenium.webdriver import Chrome

from evalflows import run
from evalflows.specs.experiment import ExperimentSpec

pytestmark = [pytest.mark.browser, pytest.mark.slow]

UIS = ("", "/v2")
"""The paths of both versions of the UI."""


class Listener:
    """A server on loopback that notes every path that it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                self.send_response(404)
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self.server.server_port}"


@pytest.fixture
def listener() -> Iterator[Listener]:
    one = Listener()
    thread = threading.Thread(target=one.server.serve_forever)
    thread.start()
    yield one
    one.server.shutdown()
    one.server.server_close()
    thread.join()


def attack(host: str, name: str) -> str:
    """A name with an image, HTML, a link, and addresses, none of which may act."""
    return (
        f"{name} ![x](http://{host}/{name}-image) <img src=http://{host}/{name}-html> <script>alert(1)</script> "
        f"[a](javascript:alert(1)) http://{host}/{name}-address www.{name}.example me@{name}.example | `c` **b**"
    )


def artifact(url: str, key: str) -> dict[str, Any]:
    """The newest artifact of a key."""
    content = {"artifacts": {"key": {"any_": [key]}}, "sort": "CREATED_DESC", "limit": 1}
    (found,) = httpx.post(f"{url}/artifacts/filter", json=content).json()
    return dict(found)


def opened(browser: Chrome, url: str, ui: str, key: str, wanted: str) -> str:
    """Open the page of an artifact. Return its text once that contains what is wanted."""
    identity = artifact(url, key)["id"]
    browser.get(f"{url.removesuffix('/api')}{ui}/artifacts/artifact/{identity}")

    def text() -> str:
        return str(steady(lambda: browser.find_element("tag name", "body").text)).replace("\u2060", "")

    until(lambda: wanted in text(), 60)
    return text()


def links(browser: Chrome) -> list[str]:
    """The addresses of all links and images of the page."""
    script = "return [...document.querySelectorAll('a, img')].map(one => one.href || one.src)"
    return [str(address) for address in browser.execute_script(script)]


def test_names_with_markdown_are_shown_and_fetch_nothing(
    browser: Chrome, prefect_api: dict[str, str], listener: Listener
) -> None:
    names = {name: attack(listener.host, name) for name in ("experiment", "dataset", "old", "new")}
    answers = {"metadata": {"old": "no", "new": "yes"}}
    rows = [{"id": i, "inputs": {"q": i}, "outputs": "yes", **answers} for i in range(30)]
    targets = [{"kind": "recorded", "name": names[name], "column": name} for name in ("old", "new")]
    spec = {
        "name": names["experiment"],
        "dataset": {"name": names["dataset"], "rows": rows},
        "targets": targets,
        "baseline": names["old"],
        "evaluators": ["exact_match"],
    }
    run(ExperimentSpec.model_validate(spec))
    url = prefect_api["PREFECT_API_URL"]
    for ui in UIS:
        text = opened(browser, url, ui, "result", "verdict")
        for name in ("dataset", "old", "new"):
            assert names[name] in text
        theirs = re.compile(f"{listener.host}|example|javascript|mailto")
        assert not [address for address in links(browser) if theirs.search(address)]
        assert browser.find_elements("xpath", "//a[normalize-space(.)='this run'] | //td")
        assert listener.asked == []
    with pytest.warns(FutureWarning, match="outside of a flow"):
        create_markdown_artifact(key="plain", markdown=f"shown ![x](http://{listener.host}/image)")
    for ui in UIS:
        listener.asked.clear()
        opened(browser, url, ui, "plain", "shown")
        until(lambda: listener.asked, 60)
        assert listener.asked[0] == "/image", "an image that is not escaped would have been noticed"
