"""The addresses of the pages Pairwise, Decisions and Judges."""

from dataclasses import replace

import pytest
from labelled import judged
from starlette.testclient import TestClient

from evalflows.dashboard.application import application
from evalflows.store.parquet import Store


@pytest.fixture
def client() -> TestClient:
    return TestClient(application(Store()), base_url="http://127.0.0.1")


@pytest.mark.parametrize("address", ["/pairwise", "/decisions", "/judges"])
def test_lists_answer_on_an_empty_store(client: TestClient, address: str) -> None:
    answer = client.get(address)
    assert answer.status_code == 200 and 'aria-current="page"' in answer.text


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("/pairwise/nothing", "comparison &#39;nothing&#39;: not in"),
        ("/decisions/nothing", "decision &#39;nothing&#39;: not in"),
        ("/judges/nothing", "judge &#39;nothing&#39;: not in"),
        ("/pairwise?page=0", "page: got &#39;0&#39;, wanted a whole number"),
        ("/pairwise?state=lost", "state: got &#39;lost&#39;, wanted one of running"),
        ("/decisions?conclusion=MAYBE", "conclusion: got &#39;MAYBE&#39;, wanted one of PASS"),
    ],
)
def test_a_wrong_address_is_one_line(client: TestClient, address: str, message: str) -> None:
    answer = client.get(address)
    assert answer.status_code == (404 if "nothing" in address else 400) and message in answer.text


def test_the_name_of_a_judge_may_have_slashes(client: TestClient) -> None:
    owner, store = judged("small", {"q0": 1.0}), Store()
    store.publish("scores", owner, [replace(row, evaluator="tone/of voice?") for row in store.read("scores", owner)])
    answer = client.get("/judges/tone%2Fof%20voice%3F")
    assert answer.status_code == 200 and "Judge tone/of voice?" in answer.text
