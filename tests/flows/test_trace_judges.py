"""Trace evaluations with judges that are paid: their budget, their failures, a kill, and retries at the next start."""

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from catalog_rows import one, rows
from endpoint import Endpoint, serving
from failing_service import Service, connection
from interrupted_runs import start, when_called
from made_traces import traces, write

from evalflows import evaluate_traces
from evalflows.engine.run_context import RunContext
from evalflows.engine.sent_chunks import chunks_to_repeat, with_budget_parts
from evalflows.specs.errors import IncompleteError, InputError
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.store import Store, connect
from evalflows.tasks.evaluate_traces import next_chunks, start_batch
from evalflows.tasks.work_through import judge

pytestmark = pytest.mark.usefixtures("without_prefect", "short_pauses")

N = 30


def spec(endpoint: Endpoint, **changes: Any) -> TraceEvaluationSpec:
    fields: dict[str, Any] = {
        "name": "paid",
        "evaluators": [{"use": "judges:says_correct", "connection": "judge"}],
        "connections": {"judge": connection(endpoint)},
        "settle_s": 0,
        "fetch_batch_size": 10,
        "chunk_retries": 0,
        "breaker_pause_s": 0.01,
    }
    return TraceEvaluationSpec.model_validate(fields | changes)


def statuses() -> list[tuple[Any, ...]]:
    return rows("select status, error_kind, count(*) from trace_scores group by all order by all")


def test_a_budget_stops_a_batch_and_the_next_start_judges_the_rest(store: Store) -> None:
    write(store, traces(N))
    with serving(Endpoint(answer=Service())) as endpoint:
        with pytest.raises(IncompleteError, match="the budget is used up: 5 judgements were not made") as caught:
            evaluate_traces(spec(endpoint, max_calls=25))
        assert endpoint.calls == 25
        state = one("select state, calls, items_fetched from watermarks where batch_id = ?", caught.value.batch)
        assert state == ("incomplete", 25, N)
        evaluate_traces(spec(endpoint, max_calls=25))
    assert (endpoint.calls, endpoint.repeated()) == (N, 0)
    assert statuses() == [("scored", None, N)]


def test_a_chunk_that_another_process_takes_up_judges_what_lacks_within_its_part_of_the_budget(store: Store) -> None:
    write(store, traces(4))
    with serving(Endpoint(answer=Service())) as endpoint:
        given = spec(endpoint, task_runner={"kind": "dask", "processes": 2}, fetch_batch_size=2, max_calls=2)
        batch = start_batch.fn(given)
        run, chunks = batch.run, next_chunks(batch)
        first, _ = with_budget_parts(run, [batch.row], chunks)
        for process in ("other", "third"):  # once more in the third, which brings back what the other has paid
            elsewhere = RunContext[Any](token=process)
            elsewhere.is_in_cluster = True
            done = judge.fn(elsewhere, first)
            counts = done.counts
            assert (counts.fetched, counts.scores, counts.over_budget, counts.usage.calls) == (2, 1, 1, 1)
            assert (endpoint.calls, len(done.dispatch.costs)) == (1, 1)
        assert chunks_to_repeat(run, [batch.row], chunks) == [chunks[0]], "the other chunk's part is left"
        counts = judge.fn(run, chunks[0]).counts
        assert (endpoint.calls, counts.scores, counts.over_budget, counts.usage.calls) == (2, 2, 0, 2)
    assert statuses() == [("scored", None, 2)]
    with pytest.raises(InputError, match=r"has no start of eval-.* wanted EVALFLOWS_STORE of that process to name"):
        judge.fn(elsewhere, replace(first, batch_id="batch-other"))


@pytest.mark.slow
def test_what_a_judge_could_not_be_reached_for_is_judged_at_the_next_start(store: Store) -> None:
    write(store, traces(N))
    service = Service(breaks_after=N // 2)
    with serving(Endpoint(answer=service)) as endpoint:
        with pytest.raises(IncompleteError, match=r"judgements failed \(.*\); the next start tries them again"):
            evaluate_traces(spec(endpoint))
        assert one("select count(*) from trace_scores where status = 'scored'") == (N // 2,)
        service.mend()
        calls = endpoint.calls
        evaluate_traces(spec(endpoint))
        assert endpoint.calls == calls + N - N // 2
        evaluate_traces(spec(endpoint))
        assert endpoint.calls == calls + N - N // 2, "nothing is new"
    assert statuses() == [("scored", None, N)]


@pytest.mark.slow
def test_another_evaluation_finds_paid_calls_in_the_ledger(store: Store) -> None:
    write(store, traces(N))
    with serving(Endpoint(answer=Service())) as endpoint:
        evaluate_traces(spec(endpoint))
        evaluate_traces(spec(endpoint, name="other", mapper={"metadata": "tags"}))  # judged again, with equal requests
    assert (endpoint.calls, endpoint.repeated()) == (N, 0)
    assert rows("select calls, calls_cached from watermarks order by started_at") == [(N, 0), (0, N)]


@pytest.mark.soak
def test_killed_while_judging_loses_nothing_and_pays_for_no_more_than_was_in_flight(
    store: Store, tmp_path: Path, prefect_environment: dict[str, str]
) -> None:
    count, in_flight = 200, 10
    write(store, traces(count))
    with serving(Endpoint(latency_s=0.03, answer=Service())) as endpoint:
        limited = connection(endpoint) | {"max_in_flight": in_flight}
        given = spec(endpoint, connections={"judge": limited}, fetch_batch_size=40)
        path = tmp_path / "watch.yaml"
        path.write_text(yaml.safe_dump(given.model_dump(mode="json")))
        process = start(tmp_path, prefect_environment, None, "evaluate-traces", str(path))
        when_called(process, endpoint, count // 2)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        output, _ = start(tmp_path, prefect_environment, None, "evaluate-traces", str(path)).communicate(timeout=120)
    print(f"the endpoint saw {endpoint.calls} calls for {count}, {endpoint.repeated()} of them again: {output!r}")
    assert endpoint.calls - endpoint.repeated() == count
    assert endpoint.repeated() <= in_flight
    assert statuses() == [("scored", None, count)]
    with connect(store.layout.root) as catalog:
        states = catalog.execute("select state from watermarks order by started_at").fetchall()
    assert states[-1] == ("completed",) and len(states) == 2
