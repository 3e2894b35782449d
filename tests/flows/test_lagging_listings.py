"""An object store whose listings show what was there a while ago, as none of the large ones has any more.

Nothing is paid twice, and nothing is wrong, in one process and in others that begin where it has ended.
"""

import time
from collections.abc import Callable
from typing import Any

import pytest
from endpoint import Endpoint, echo, serving
from fake_s3 import fake_s3
from matched import asked

from evalflows import approve, gate, run
from evalflows.specs import ExperimentSpec
from evalflows.specs.errors import IncompleteError, InputError, StorageError
from evalflows.store import file_systems, leases
from evalflows.store.doctor import examine
from evalflows.store.store import Store

ITEMS, LAG_S, MOST_ATTEMPTS, GATES = 40, 1.0, 12, 4


@pytest.mark.soak
@pytest.mark.usefixtures("without_prefect")
@pytest.mark.parametrize("honours", [False, True], ids=["ignores", "honours"])
def test_runs_and_gates_are_right_though_listings_lag(honours: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "SETTLE_S", 0.01)
    monkeypatch.setattr(file_systems, "RETRY_S", 0.1)
    with fake_s3(honours=honours, lag_s=LAG_S) as server, serving(Endpoint(answer=echo)) as endpoint:
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
            "AWS_ACCESS_KEY_ID": "k",
            "AWS_SECRET_ACCESS_KEY": "s",
            "EVALFLOWS_STORE": "s3://evals/lagging",
        }.items():
            monkeypatch.setenv(name, value)

        def spec(number: int) -> ExperimentSpec:
            rows = [{"inputs": {"q": f"q{n}"}, "outputs": {"a": "b"}} for n in range(ITEMS)]
            fields = {
                "name": "lagging",
                "run_key": f"run {number}",
                "dataset": {"rows": rows},
                "targets": [{"kind": "chat", "connection": "mock", "user": f"{number} {{q}}"}],
                "connections": {"mock": {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m"}},
                "evaluators": ["contains"],
                "gates": [{"name": "release", "non_inferiority": {"contains": 0.5}}] if number else [],
                "gate_fails_run": False,
                "chunk_size": 10,
            }
            return ExperimentSpec.model_validate(fields)

        refusals: list[str] = []

        def until_done(start: Callable[[ExperimentSpec], Any], number: int) -> Any:
            for _ in range(MOST_ATTEMPTS):
                if honours and number > 1:
                    monkeypatch.setattr(file_systems, "_opened", {})  # as a process that has written nothing
                try:
                    return start(spec(number))
                except (InputError, StorageError, IncompleteError) as error:
                    refusals.append(f"{number} {type(error).__name__} {str(error)[:300]}")
                    assert honours and number > 1, refusals
                    time.sleep(LAG_S / 2)
            raise AssertionError(refusals)

        (first,) = until_done(run, 0)
        assert until_done(run, 0) == [first] and endpoint.calls == ITEMS, "resumed before listings show it"
        approve(str(first))
        for number in range(1, GATES + 1):
            until_done(gate, number)
            until_done(gate, number)
        print(f"{len(refusals)} refusals", *sorted({*refusals}), sep="\n")
        experiments = GATES + 1
        assert (endpoint.calls, endpoint.repeated()) == (experiments * ITEMS, 0)
        time.sleep(LAG_S + 0.5)
        assert asked("select state, count(*) from experiments group by 1") == [("completed", experiments)]
        assert asked("select count(*), count(distinct run_id) from outputs") == [(experiments * ITEMS,) * 2]
        assert asked("select count(*) > 0, bool_and(conclusion = 'PASS') from gate_decisions") == [(True, True)]
        assert [one for one in examine(Store()).findings if one.severity == "damaged"] == []
