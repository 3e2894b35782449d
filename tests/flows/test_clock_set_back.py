"""A clock that is set back during a run, or before the next one, changes nothing about the newest results."""

from typing import Any

import pytest
from click.testing import CliRunner
from clock import set_clock_back
from endpoint import Endpoint, Reply, Request, echo, error, serving
from matched import asked

from evalflows import run
from evalflows.cli.main import cli
from evalflows.specs import ExperimentSpec
from evalflows.specs.errors import IncompleteError
from evalflows.store import Store
from evalflows.store.queries.lookup import find_experiments

pytestmark = pytest.mark.usefixtures("without_prefect", "short_pauses")

ITEMS = 8


def spec_of(endpoint: Endpoint, **changes: Any) -> ExperimentSpec:
    connection = {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m", "attempts": 1}
    fields: dict[str, Any] = {
        "name": "faq",
        "dataset": {"rows": [{"inputs": {"question": f"q{i}"}, "outputs": {"a": "b"}} for i in range(ITEMS)]},
        "targets": [{"kind": "chat", "connection": "mock", "user": "{question}"}],
        "evaluators": ["contains"],
        "connections": {"mock": connection},
        "chunk_retries": 0,
    }
    return ExperimentSpec.model_validate(fields | changes)


def sealed_as(identity: str) -> str:
    (row,) = Store().read("experiments", identity)
    assert Store().is_sealed("experiments", identity)
    assert row.started_at < row.ended_at <= row.recorded_at
    return str(row.state)


@pytest.mark.slow
def test_an_experiment_that_ends_is_completed_and_the_newest_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(request: Request) -> Reply:
        if endpoint.calls == ITEMS // 2:
            set_clock_back(monkeypatch)
        return echo(request)

    endpoint = Endpoint(answer=answer)
    with serving(endpoint):
        (identity,) = run(spec_of(endpoint))
        assert sealed_as(identity) == "completed"
        set_clock_back(monkeypatch)
        (identity,) = run(spec_of(endpoint))
    assert find_experiments(Store(), "faq") == [identity]


@pytest.mark.slow
def test_a_resumed_experiment_has_its_last_results_and_counts_its_own_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers that the budget left out fail for good: what is recorded of them earlier no longer counts."""
    with serving(Endpoint()) as endpoint:
        with pytest.raises(IncompleteError, match="not done: 5 of 8 answers"):
            run(spec_of(endpoint, run_key="one", max_calls=3))
        set_clock_back(monkeypatch)
        endpoint.answer = lambda request: error(413, "too long")
        resumed = CliRunner().invoke(cli, ["resume", "faq", "--set", "max_calls=100"])
        assert (resumed.exit_code, endpoint.calls) == (0, ITEMS), resumed.output
        assert "\n5 model calls made in this run\n" in resumed.stdout
        (identity,) = run(spec_of(endpoint, run_key="one", max_calls=100))
        assert endpoint.calls == ITEMS, "nothing is left to do"
    assert sealed_as(identity) == "completed"
    assert asked("select status, count(*) from outputs group by all order by all") == [("failed", 5), ("ok", 3)]
