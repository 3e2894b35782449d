"""The routes of the dashboard, and what is answered when there is no page."""

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from labelled import judged
from PIL import Image
from production import produce, trace
from starlette.testclient import TestClient

import evalflows.dashboard.app
from evalflows.dashboard.app import application
from evalflows.dashboard.rendering import Page, Query, Site
from evalflows.mcp_server import _tool
from evalflows.specs.errors import StorageError
from evalflows.store.query_process import QueryProcesses
from evalflows.store.store import Store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("empty") / "store")


def browser(store: Store) -> TestClient:
    return TestClient(application(store), base_url="http://127.0.0.1", follow_redirects=False)


def test_the_first_page_is_home(store: Store) -> None:
    answer = browser(store).get("/")
    assert answer.headers["location"] == "/home"


def test_a_page_is_made_once_until_a_file_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    whole = evalflows.dashboard.app.whole_page
    monkeypatch.setattr(evalflows.dashboard.app, "whole_page", lambda *given: made.append("one") or whole(*given))
    store = Store()
    client = browser(store)
    first, again = client.get("/production/traces").text, client.get("/production/traces").text
    assert (first, len(made)) == (again, 1)
    client.cookies.set("evalflows_texts", "raw")
    client.get("/production/traces")
    assert len(made) == 2, "the reader wants other texts"
    produce(store, trace("a", "in a", "out a"))
    assert "/production/traces/" in client.get("/production/traces").text and len(made) == 3


def test_lists_answer_on_an_empty_store(store: Store) -> None:
    for address in ("/home", "/experiments", "/datasets", "/pairwise", "/decisions", "/judges"):
        answer = browser(store).get(address)
        assert answer.status_code == 200 and 'aria-current="page"' in answer.text


def test_an_unknown_id_is_not_found_and_the_page_says_what_was_wanted(store: Store) -> None:
    for address in (
        *("/experiments/nothing", "/decisions/nothing", "/pairwise/nothing", "/judges/nothing", "/review/nothing"),
        *("/compare?baseline=nothing&candidate=x", "/production/incidents/nothing", "/production/traces/nothing"),
        *("/production/evaluations/nothing", "/datasets/nothing", "/dataset-example?dataset=nothing"),
    ):
        answer = browser(store).get(address)
        assert answer.status_code == 404, address
        assert "nothing" in answer.text and 'role="alert"' in answer.text


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("/experiments?state=gone", "state: got &#39;gone&#39;"),
        ("/pairwise?page=0", "page: got &#39;0&#39;, wanted a whole number"),
        ("/pairwise?state=lost", "state: got &#39;lost&#39;, wanted one of running"),
        ("/decisions?conclusion=MAYBE", "conclusion: got &#39;MAYBE&#39;, wanted one of PASS"),
    ],
)
def test_a_wrong_parameter_is_a_bad_request(store: Store, address: str, message: str) -> None:
    answer = browser(store).get(address)
    assert (answer.status_code, message in answer.text) == (400, True)


def test_a_file_that_a_query_process_left_out_is_named_on_every_page_and_by_every_tool() -> None:
    store = Store()
    produce(store, trace("a", "in", "out"))
    (path,) = Path(store.layout.root, "observations").glob("[so]*/*/*.parquet")
    path.write_bytes(b"PAR1 PAR1")
    queries = QueryProcesses(store.layout.root)
    assert queries.rows("from traces") == []
    queries.close()
    (damage,) = store.left_out()
    assert f"{path}: damaged: got 9 bytes" in damage.note
    for address in ("/home", "/production/traces", "/experiments/nothing"):
        assert f"{path}: damaged: got 9 bytes" in browser(store).get(address).text
    assert _tool(store, lambda: "an answer")().splitlines() == ["an answer", damage.note]


def test_the_name_of_a_judge_may_have_slashes() -> None:
    owner, store = judged("small", {"q0": 1.0}), Store()
    store.publish(
        "judgements", owner, [replace(row, evaluator="tone/of voice?") for row in store.read("judgements", owner)]
    )
    answer = browser(store).get("/judges/tone%2Fof%20voice%3F")
    assert answer.status_code == 200 and "Judge tone/of voice?" in answer.text


def test_a_page_is_sent_as_a_file_and_shows_raw_texts_to_who_chose_them() -> None:
    owner = judged("small", {"q0": 1.0})
    pages = browser(Store())
    address = f"/experiments/{owner}"
    assert f'href="{address}?file=1"' in pages.get(address).text
    sent = pages.get(f"{address}?file=1")
    assert sent.headers["content-disposition"] == 'attachment; filename="small.html"'
    assert "q0" in sent.text and not re.findall("<(?:script|form|a href=./)", sent.text)
    drawn = pages.get(f"{address}?file=png")
    assert drawn.headers["content-disposition"] == 'attachment; filename="small.png"'
    with Image.open(io.BytesIO(drawn.content)) as picture:
        assert picture.size == (1200, 630) and len(picture.getcolors(1 << 20) or ()) > 4
    refused = pages.get("/experiments?file=1")
    assert refused.status_code == 400 and "wanted an experiment, a comparison" in refused.text
    for given, to in (("//evil.test", "/"), ("https://evil.test", "/"), ("/\\evil.test", "/"), (address, address)):
        chosen = pages.get("/texts", params={"raw": "1", "to": given})
        assert (chosen.status_code, chosen.headers["location"]) == (303, to)
    assert "rendered texts" in pages.get(address).text, "the cookie is kept"
    pages.get("/texts", params={"to": address})
    assert "raw texts" in pages.get(address).text


def test_a_condition_is_run_only_if_a_form_of_ours_sent_it(store: Store) -> None:
    pages = browser(store)
    where = "error('ran')"

    def ran(address: str, **headers: str) -> bool:
        answer = pages.get(address, headers={name.replace("_", "-"): value for name, value in headers.items()})
        assert answer.status_code == (400 if "filter: sql: " in answer.text else 200)
        assert ("has not been run" in answer.text) == (answer.status_code == 200)
        return answer.status_code == 400

    produce(store, trace("a", "in", "out"))
    (of_form,) = re.findall(r'name="proof" value="(\w+)"', pages.get("/production/traces").text)
    sent = pages.get("/production/traces", params={"where": where, "since": "", "limit": "7", "proof": of_form})
    address = sent.headers["location"]
    assert sent.status_code == 303
    assert address.startswith("/production/traces?where=error%28%27ran%27%29&since=&limit=7&proof=")
    assert of_form not in address
    assert ran(address)
    assert ran(address, sec_fetch_site="same-origin")
    link = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    assert not ran(address, **link)
    assert not ran(f"/production/traces?where={where}&proof={of_form}", **link)
    assert not ran(f"/production/traces?where={where}")
    assert not ran(address.replace("ran", "run"))
    assert not ran(address.replace("/traces?", "/traces?where=true&").replace("ran", "run"))
    (of_other,) = re.findall(r'name="proof" value="(\w+)"', browser(store).get("/production/traces").text)
    assert not ran(f"/production/traces?where={where}&proof={of_other}")
    without = pages.get("/production/traces", params={"where": "", "limit": "7", "proof": of_form})
    assert without.headers["location"] == "/production/traces?where=&limit=7"


def test_a_damaged_file_is_named_and_a_fault_is_no_traceback(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(site: Site, query: Query) -> Page:
        raise StorageError("scores/sealed/x: damaged")

    def fault(site: Site, query: Query) -> Page:
        raise ZeroDivisionError("secret of the code")

    monkeypatch.setattr(evalflows.dashboard.app, "PAGES", {"/damaged": damaged, "/fault": fault})
    answer = browser(store).get("/damaged")
    assert (answer.status_code, "scores/sealed/x: damaged" in answer.text) == (500, True)
    answer = browser(store).get("/fault")
    assert answer.status_code == 500
    assert "internal error" in answer.text
    assert "secret" not in answer.text
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
