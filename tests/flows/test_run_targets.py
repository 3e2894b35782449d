"""Targets of every kind: chat, http, recorded answers and columns."""

from pathlib import Path

import pytest
from catalog_rows import rows
from endpoint import Endpoint, Reply, Request, error, serving
from planted_difference import N, often, spec, targets, verdict

from evalflows import run
from evalflows.specs import IncompleteError

pytestmark = pytest.mark.usefixtures("prefect_api")


def test_a_wrong_key_is_reported_without_retries() -> None:
    refusal = r"none of 40 answered: HTTP 401: Incorrect API key provided"
    endpoint = Endpoint(answer=lambda request: error(401, "Incorrect API key provided"))
    with serving(endpoint), pytest.raises(IncompleteError, match=refusal):
        run(
            spec(
                targets=[{"kind": "chat", "connection": "mock", "user": "{question}"}],
                connections={"mock": {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m"}},
            )
        )
    assert endpoint.calls == N


@pytest.mark.slow
def test_an_unreachable_endpoint_is_reported() -> None:
    with serving(Endpoint()) as endpoint:
        url = endpoint.base_url
    connection = {"kind": "endpoint", "base_url": url, "model": "m", "attempts": 1}
    with pytest.raises(IncompleteError, match=r"none of 40 answered: Connect"):
        run(
            spec(
                targets=[{"kind": "chat", "connection": "gone", "user": "{question}"}],
                connections={"gone": connection},
                chunk_retries=0,
            )
        )
    assert rows("select distinct error_kind from outputs") == [("connection",)]


@pytest.mark.slow
def test_an_http_target_is_called() -> None:
    def application(request: Request) -> Reply:
        return Reply({"choices": [{"text": request["ask"]["it"].upper()}], "asked": request})

    with serving(Endpoint(answer=application)) as endpoint:
        body = {"ask": {"it": "{question}"}, "user": "u"}
        http = {"kind": "http", "url": endpoint.base_url, "body": body, "answer": "choices.0.text"}
        run(spec(targets=[http]))
    assert endpoint.calls == N
    assert rows("select mean from metric_summary where metric = 'exact_match'") == [(1.0,)]
    assert rows("select min(latency_s) > 0, max(attempts) from outputs") == [(True, 1)]


@pytest.mark.slow
def test_recorded_answers_of_an_experiment_are_judged_without_calls() -> None:
    (first,) = run(spec(name="first", targets=targets(target=often), repetitions=2, evaluators=[]))
    (second,) = run(spec(name="second", targets=[{"kind": "recorded", "experiment": "first"}], repetitions=2))
    assert rows("select mean, scored from metric_summary where metric = 'exact_match'") == [(0.75, 2 * N)]
    pairs = rows(
        """select count(*), bool_and(a.run_id = b.reused_from and a.outputs = b.outputs and a.latency_s = b.latency_s)
           from outputs b join outputs a on a.run_id = b.reused_from where b.experiment_id = ?""",
        second,
    )
    assert pairs == [(2 * N, True)]
    assert rows("select spec ->> '$.targets[0].experiment' from experiments where experiment_id = ?", second) == [
        (first,)
    ]


@pytest.mark.slow
def test_recorded_answers_in_a_dataset_column_are_judged(tmp_path: Path) -> None:
    path = tmp_path / "answers.csv"
    path.write_text(
        "question,truth,ours,theirs\n" + "\n".join(f"q{i},Q{i},Q{i},{'no' if i % 2 else f'Q{i}'}" for i in range(N))
    )
    columns = {"inputs": "question", "reference_outputs": {"answer": "truth"}}
    both = [{"kind": "recorded", "name": name, "column": name} for name in ("ours", "theirs")]
    run(spec(dataset={"path": str(path), "columns": columns}, targets=both))
    assert verdict("exact_match") == ("worse", None, -0.5)
    assert rows("select name from datasets") == [("answers",)]
