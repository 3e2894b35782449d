"""What pages send: only our own pages may, only JSON, and each mistake is one line."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
from labelled import judged
from matched import asked
from starlette.testclient import TestClient

from evalflows.dashboard.app import MOST_BYTES, application
from evalflows.store.store import Store

HERE = {"origin": "http://127.0.0.1:4280"}


@pytest.fixture
def address() -> str:
    return f"/review/{judged('small', {'q0': 1.0, 'q1': 0.0})}"


@pytest.fixture
def browser(address: str) -> TestClient:
    return TestClient(application(Store()), base_url="http://127.0.0.1:4280")


@pytest.fixture
def item(browser: TestClient, address: str) -> str:
    return re.findall(r'data-item="(\w+)"', browser.get(f"{address}?metric=correct&by=ann").text)[0]


def sent(browser: TestClient, address: str, content: Any, headers: Mapping[str, str] = HERE) -> tuple[int, str]:
    """The status of the answer, and its error."""
    answer = browser.post(address, json=content, headers=headers)
    return answer.status_code, answer.json().get("error", "") if "json" in answer.headers["content-type"] else ""


def test_a_label_is_stored_before_the_answer(browser: TestClient, address: str, item: str) -> None:
    label = {"item": item, "answer": "no", "comment": None}
    assert sent(browser, f"{address}/labels?metric=correct&by=ann", label) == (200, "")
    assert asked("select value, labeller, source from labels") == [(0.0, "ann", "review")]


def test_what_is_wrong_is_refused_in_one_line(browser: TestClient, address: str, item: str) -> None:
    labels, good = f"{address}/labels?metric=correct&by=ann", {"item": item, "answer": "no"}
    for content, where, error in (
        ({"answer": "no"}, labels, "item: got none"),
        ({"item": item, "answer": "maybe"}, labels, "value: got 'maybe', wanted one of: yes, no"),
        ({"item": "x", "answer": "no"}, labels, "item: got 'x'"),
        ([1], labels, "got no JSON object of texts"),
        ({"item": 3}, labels, "got no JSON object of texts"),
        (good | {"comment": "x" * MOST_BYTES}, labels, f"got more than {MOST_BYTES} bytes"),
        (good, f"{address}/labels?metric=correct", "by: got none"),
        (good, "/review/nothing/labels?metric=correct&by=ann", "experiment 'nothing'"),
    ):
        status, got = sent(browser, where, content)
        assert (status, got.startswith(error)) == (404 if "nothing" in where else 400, True), got
        assert "\n" not in got
    assert asked("select count(*) from labels") == [(0,)]


def test_other_sites_and_other_content_types_store_nothing(browser: TestClient, address: str, item: str) -> None:
    labels, label = f"{address}/labels?metric=correct&by=ann", {"item": item, "answer": "no"}
    assert sent(browser, labels, label, {"origin": "http://evil.example"})[0] == 403
    assert sent(browser, labels, label, {"sec-fetch-site": "cross-site"})[0] == 403
    form = {"content-type": "application/x-www-form-urlencoded"} | HERE
    assert sent(browser, labels, label, form) == (400, "got another content type, wanted application/json")
    assert browser.get(labels).status_code == 404
    assert asked("select count(*) from labels") == [(0,)]
