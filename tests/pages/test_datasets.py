"""Datasets in the dashboard: what people send makes a new version, and what the pages show of versions and examples."""

import json
import re
from typing import Any

import pytest
from labelled import judged
from matched import START, experiment, rows_of
from page_client import page_client
from production import produce, trace, trace_id
from starlette.testclient import TestClient

from evalflows.dashboard.datasets import take_example
from evalflows.dashboard.rendering import Query
from evalflows.specs.errors import InputError
from evalflows.store.dataset_versions import add_examples
from evalflows.store.records import ComparisonSetRow
from evalflows.store.snapshots import current_snapshot, load_snapshot, to_examples
from evalflows.store.store import Store

ODD = "a/../b?c#<b>"
FILE = {"content-type": "application/octet-stream"}


@pytest.fixture
def browser() -> TestClient:
    return page_client(origin="http://127.0.0.1:4280")


def rows(name: str) -> dict[str, tuple[Any, Any]]:
    """The inputs and the references of a dataset's newest version, by id."""
    examples = load_snapshot(Store(), current_snapshot(Store(), name) or "")
    return {one.example_id: (json.loads(one.inputs), json.loads(one.reference_outputs or "null")) for one in examples}


def seen(browser: TestClient, name: str, identity: str) -> str:
    page = browser.get("/dataset-example", params={"dataset": name, "id": identity}).text
    return re.findall(r'name="seen" value="(\w+)"', page)[0]


def sources(name: str) -> list[str]:
    query = "select source from source.dataset_versions where name = ? order by recorded_at"
    return [source for (source,) in Store().query(query, [name])]


def test_a_file_and_edits_make_versions_that_the_page_compares(browser: TestClient) -> None:
    query = {
        "dataset": ODD,
        "file": "faq.csv",
        "by": "ann",
        "inputs": "question",
        "reference": "answer=best",
        "id": "nr",
    }
    for content, file, error in (
        (b"question,best,nr\nHow?,So.,1\nWhy?,2\n", "faq.csv", "faq.csv:3: got 2 cells, wanted 3"),
        (b"question,best,nr\nHow?,So.,1\nWhy?,Because,1\n", "faq.csv", "faq.csv:3: duplicate id '1', first in row 2"),
        (b'{"question": "\xff"}', "faq.jsonl", "faq.jsonl:1: not UTF-8"),
        (b"x", "faq.exe", "faq.exe: got .exe, wanted one of .jsonl"),
        (b"x", "x" * 201, "file: got 201 characters"),
        (b"x" * 20_000_001, "faq.csv", "got more than 20000000 bytes"),
    ):
        answer = browser.post("/datasets", params=query | {"file": file}, content=content, headers=FILE)
        assert (answer.status_code, answer.json()["error"].startswith(error)) == (400, True), answer.json()
        assert "\n" not in answer.json()["error"]
    assert browser.post("/datasets", params=query, json={}).status_code == 400
    assert browser.post("/datasets", params=query, headers=FILE | {"origin": "http://evil.test"}).status_code == 403
    assert Store().query("select * from source.dataset_versions") == []

    content = "question,best,nr\nHow?,So.,1\n<i>Why?</i>,Because.,2\n"
    sent = browser.post("/datasets", params=query, content=content, headers=FILE).json()
    assert sent["said"] == f"{ODD}: 2 examples; 2 added, 0 unchanged"
    edit = {
        "inputs.question": "How\n so?",
        "reference_outputs.answer": " So.",
        "by": "ben",
        "seen": seen(browser, ODD, "1"),
    }
    example = {"dataset": ODD, "id": "1"}
    assert browser.post("/dataset-example", params=example, json=edit).status_code == 200
    stale = browser.post("/dataset-example", params=example, json=edit)
    assert stale.status_code == 400 and "has changed since it was shown" in stale.json()["error"]
    new = {"inputs": '{"question": "New?", "n": 3}', "id": "3", "by": "ann", "split": "dev"}
    assert browser.post("/dataset-example", params={"dataset": ODD}, json=new).status_code == 200
    assert rows(ODD) == {
        "1": ({"question": "How\n so?"}, {"answer": " So."}),
        "2": ({"question": "<i>Why?</i>"}, {"answer": "Because."}),
        "3": ({"question": "New?", "n": 3}, None),
    }
    assert sources(ODD) == ["faq.csv, uploaded by ann", "an edit by ben", "a new example by ann"]

    page = browser.get(sent["location"])
    assert page.status_code == 200 and "3 examples, from a new example by ann" in page.text
    assert "&lt;i&gt;Why?" in page.text and "<i>Why" not in page.text
    assert "1 of 3 example" in browser.get(sent["location"], params={"q": "bECAUSE"}).text
    changes = browser.get(sent["location"], params={"against": sent["snapshot"]}).text
    assert "1 added, 1 changed, 1 unchanged" in changes and "<ins>so</ins>" in changes.replace("\n ", "")
    assert browser.get(sent["location"], params={"against": "snap-x"}).status_code == 400
    old = browser.get("/dataset-example", params=example | {"version": sent["snapshot"]}).text
    assert "How?" in old and "<textarea" not in old, "an earlier version is only shown"
    listed = browser.get("/datasets").text
    assert "a/../b?c#&lt;b&gt;" in listed and "never" in listed


@pytest.mark.parametrize(
    "inputs",
    [
        {"question": "\n plain\n", "more": "x"},
        {"question": "a\r\nb"},
        {"question": "\u202e\x1b[1m"},
        {"question": ""},
        {"question": ["a", {"b": None}]},
        {"question": "<textarea></textarea>&amp;"},
    ],
)
def test_an_example_that_is_saved_as_it_was_shown_is_the_same(browser: TestClient, inputs: dict[str, Any]) -> None:
    row = {"id": "q", "inputs": inputs, "outputs": {"a": 1}, "metadata": {"b": "c"}, "attachments": {"f": "g"}}
    made = add_examples(Store(), "odd", to_examples([(1, row)], "rows"), source="rows")
    page = browser.get("/dataset-example", params={"dataset": "odd", "id": "q"}).text
    unescaped = {"&lt;": "<", "&gt;": ">", "&#34;": '"', "&#39;": "'", "&amp;": "&"}
    fields = {
        name: re.sub("|".join(unescaped), lambda found: unescaped[found[0]], text)
        for name, text in re.findall(r'<textarea name="([^"]+)"[^>]*>\n(.*?)</textarea>', page, re.DOTALL)
    }
    saved = {**fields, "by": "ann", "seen": seen(browser, "odd", "q")}
    told = browser.post("/dataset-example", params={"dataset": "odd", "id": "q"}, json=saved).json()
    assert told["snapshot"] == made.snapshot


def test_what_is_no_example_is_refused_in_one_line() -> None:
    store = Store()
    add_examples(store, "faq", to_examples([(1, {"id": "1", "inputs": "How?"})], "rows"), source="rows")
    good = {"inputs": '{"a": 1}', "by": "ann"}
    for address, change, error in (
        ({"dataset": "faq"}, {"inputs": '{"a": '}, "inputs: not JSON"),
        ({"dataset": "faq"}, {"inputs": " "}, "inputs: got none"),
        ({"dataset": "faq"}, {"inputs": '"\\ud800"'}, "example:1: got '\\ud800', half of a character"),
        ({"dataset": "faq"}, {"by": " "}, "by: got none"),
        ({"dataset": "faq"}, {"id": "1"}, "a new example by ann: got example '1', in the dataset with other content"),
        ({"dataset": "none"}, {}, "dataset 'none': not in the store, wanted one of: faq"),
        ({"dataset": "faq", "id": "9"}, {}, "example '9': not in the newest version of dataset 'faq'"),
    ):
        with pytest.raises(InputError) as caught:
            take_example(store, Query.of(address.items()), good | change)
        assert str(caught.value).startswith(error), caught.value
    assert sources("faq") == ["rows"]


def test_a_reviewed_example_and_a_trace_are_added_with_one_click(browser: TestClient) -> None:
    owner = judged("small", {"q0": 1.0, "q1": 0.0})
    review = {"metric": "correct", "by": "ann", "dataset": "hard"}
    page = browser.get(f"/review/{owner}", params=review).text
    assert 'data-post="datasets"' in page and 'value="hard"' in page
    (item,) = re.findall(r'name="item" value="(\w+)"', page)
    for said in ("hard: 1 examples; 1 added, 0 unchanged", "hard: 1 examples; 1 unchanged"):
        given = browser.post(f"/review/{owner}/datasets", params=review, json={"item": item, "dataset": "hard"})
        assert given.json()["said"] == said
    (identity,) = rows("hard")
    assert rows("hard")[identity][0] == {"question": f"{identity}?"}
    produce(Store(), trace("a", "mail bob@example.com", "sent"))
    address = f"/production/traces/{trace_id('a')}"
    assert f'data-post="{address}/datasets"' in browser.get(address).text
    for said in ("added; 2 examples; masked: email 1", "not added: the dataset already has this input; 2 examples"):
        given = browser.post(f"{address}/datasets", json={"dataset": "hard", "by": "ben", "reference": "yes"})
        assert given.json()["said"] == f"hard: {said}"
    assert sources("hard") == ["a review by ann", "production, by ben"]
    assert "bob@" not in str(rows("hard")) and "sent" in str(rows("hard"))


def test_what_ran_on_a_dataset(browser: TestClient) -> None:
    add_examples(Store(), "faq", to_examples(enumerate(rows_of(["q0"])), "rows"), source="rows")
    ids = [experiment(name, {"q0": "x"}, dataset_name=dataset) for name, dataset in (("one", "faq"), ("two", "other"))]
    for name, compared in (("first", ids[:1]), ("second", ids[1:])):
        Store().append("comparison_sets", f"cmp-{name}", "p", [_comparison(f"cmp-{name}", name, compared)])
    page = browser.get("/datasets/faq").text
    assert all(text in page for text in (">one<", ">first<", "/experiments?dataset=faq", "/pairwise?dataset=faq"))
    assert not any(text in page for text in (">two<", ">second<"))
    listed = browser.get("/pairwise", params={"dataset": "other"}).text
    assert ">second<" in listed and ">first<" not in listed


def _comparison(identity: str, name: str, experiments: list[str]) -> ComparisonSetRow:
    return ComparisonSetRow(
        comparison_id=identity,
        name=name,
        experiments=experiments,
        snapshot_ids=[],
        evaluators="[]",
        spec="{}",
        randomize_order=True,
        both_orders=True,
        failed_output_policy="loses",
        seed=0,
        repetitions=1,
        chunk_size=10,
        n_shared=1,
        n_left_out=0,
        evalflows_version="0",
        state="completed",
        started_at=START,
    )
