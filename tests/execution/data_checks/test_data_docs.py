"""Data Docs: what was found stands in the page, and nothing in it acts."""

import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from finished import Rows, finished_experiment

from evalflows.data_checks.checks import check_results, row_of_finished
from evalflows.store.records import CheckRow, to_json
from evalflows.store.store import Store

pytestmark = pytest.mark.slow  # they import Great Expectations

HOSTILE = """<script>alert(1)</script><img src=x onerror=alert(1)> $v ${v} {{ 7 * 7 }} [l](javascript:alert(1)) '">"""


class Read(HTMLParser):
    """Notes the tags and attributes of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def hostile(outputs: Rows, scores: Rows) -> None:
    outputs[0] = replace(outputs[0], outputs=f"{HOSTILE}\u202e")
    outputs[1] = replace(outputs[1], status=HOSTILE)
    outputs.append(replace(outputs[2], run_id="r", example_id=HOSTILE))
    scores[0] = replace(scores[0], value=7.0)
    scores[1] = replace(scores[1], metric=HOSTILE, value=None)


def page_of(title: str, checks: Sequence[CheckRow]) -> str:
    from evalflows.data_checks import data_docs

    return data_docs.page_of(title, checks)


def page_of_results(store: Store, title: str) -> str:
    return page_of(title, check_results(store, [row_of_finished(store, "exp-1")])["exp-1"])


def test_findings_stand_in_the_page(store: Store) -> None:
    finished_experiment(store, hostile)
    text = " ".join(Read(page_of_results(store, "support (exp-1)")).text.split())
    assert "Expectation Suite: support (exp-1)" in text
    assert "Evaluated Expectations28 Successful Expectations23" in text
    assert "values must be greater than or equal to 0.0 and less than or equal to 1.0" in text
    assert "7.0 (example_id q0, metric exact, repetition 0)" in text
    assert "If outputs.status IN (ok), then values must be parseable as JSON." in text


def test_nothing_hostile_acts(store: Store) -> None:
    finished_experiment(store, hostile)
    page = page_of_results(store, HOSTILE)
    read = Read(page)
    assert not read.tags & {"script", "img", "link", "iframe", "form", "object"}
    assert not [name for name, _ in read.attributes if name.startswith("on") or name == "src"]
    assert not [value for name, value in read.attributes if name == "href" and not str(value).startswith(("#", "../"))]
    assert "http://" not in page and "https://" not in page, "no other server is asked"
    assert "Content-Security-Policy" in page and "default-src 'none'" in page
    assert "\u202e" not in page
    assert not re.search("[\ufdd0-\ufdef]", page)
    assert HOSTILE in read.text
    assert read.text.count("<script>alert(1)</script>") >= 3, "as a value, as a status, and as an example's id"


def test_names_of_metrics_and_evaluators_are_escaped(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    finished_experiment(store)
    row = row_of_finished(store, "exp-1")
    spec: dict[str, Any] = {
        "name": "support",
        "dataset": {"snapshot": row.snapshot_id},
        "targets": [{"kind": "recorded", "column": "answer"}],
        "evaluators": [{"use": "exact_match", "name": HOSTILE}],
        "metrics": {HOSTILE: {"range": [0, 1]}},
    }
    store.publish("experiments", "exp-1", [replace(row, spec=to_json(spec))])
    read = Read(page_of_results(store, "support"))
    assert f"runs.scores_by.{HOSTILE}" in read.text and f"scores.value.{HOSTILE}" in read.text
    assert not read.tags & {"script", "img"}


def test_conditions_and_expectations_of_users_are_shown(make: Any) -> None:
    """A comparison, a regular expression, a table's expectation, and a check that could not be made."""
    column = {"column": "metadata.n"}
    less = {"type": "comparison", "column": {"name": "metadata.n"}, "operator": "<=", "parameter": 4}
    kept = [
        ("expect_column_values_to_match_regex", column | {"regex": "^[a-z]+(<b>)$", "row_condition": less}, True),
        ("expect_column_mean_to_be_between", column | {"max_value": 4}, False),
        ("expect_table_row_count_to_equal", {"value": 5}, False),
        ("expect_column_values_to_not_be_null", {"column": "nowhere"}, None),
    ]
    rows = []
    for name, kwargs, passed in kept:
        said = f"could not be checked: {HOSTILE}" if passed is None else "wanted"
        told = {"expected": to_json(kwargs), "observed": to_json({"observed_value": 4.5}), "message": said}
        rows.append(
            make("checks", check_id=name, batch_id="b", subject_kind="snapshot", name=name, passed=passed, **told)
        )
    read = Read(page_of("mine", rows))
    text = " ".join(read.text.split())
    assert "^[a-z]+(<b>)$" in text and "4.5" in text
    assert "Must have exactly 5 rows." in text
    assert f"could not be checked: {HOSTILE}" in text and "not checked" in text and "unknown" not in text
    assert "b" not in read.tags and "script" not in read.tags
