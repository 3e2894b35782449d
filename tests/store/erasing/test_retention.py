"""Rules of retention: what is too old goes, what something refers to stays."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from personal import OTHER, SECRET, figures, files_with
from production import BEGAN, trace

import evalflows.store.packing
import evalflows.store.records
import evalflows.store.retention
from evalflows.specs.retention import RetentionSpec
from evalflows.store.doctor import examine
from evalflows.store.leases import hold_lease
from evalflows.store.observations import write_observations
from evalflows.store.packing import pack
from evalflows.store.records import now
from evalflows.store.retention import retain, would_retain
from evalflows.store.store import Store
from evalflows.store.trace_records import evaluation_id

Make = Callable[..., Any]
OLD = datetime(2020, 1, 1, tzinfo=UTC)


def kept(store: Store) -> list[str]:
    return [name for (name,) in store.query("select experiment_id from source.experiments order by 1")]


@pytest.fixture
def add(store: Store, make: Make) -> Callable[..., None]:
    """Add an experiment with rows in all its tables, three years old."""

    def add(identity: str, group: str | None = None, name: str = "bot", days: int = 0, **fields: Any) -> None:
        started = OLD + timedelta(days=days)
        of = {"experiment_id": identity, "run_group": group or f"group-{identity}", "name": name, "spec": "{}"}
        row = make(
            "experiments", started_at=started, state="completed", **{"n_examples": 1, "repetitions": 1} | of | fields
        )
        store.publish("outputs", identity, [make("outputs", run_id=f"r-{identity}", experiment_id=identity)])
        judgement = make("judgements", judgement_id=f"s-{identity}", experiment_id=identity)
        store.publish("judgements", identity, [judgement])
        store.publish("estimates", identity, [make("estimates", estimate_id=f"e-{identity}", experiment_id=identity)])
        store.publish("experiments", identity, [row])

    return add


def test_texts_of_old_traces_are_erased_and_those_of_new_ones_and_figures_stay(
    production: Store, store_root: Path
) -> None:
    write_observations(production, [trace("new", f"{OTHER} today", "x", began=now())])
    tables, days = figures(production), (now() - BEGAN).days
    spec = RetentionSpec(trace_texts_days=days + 1)
    assert [dict(one.rows) for one in retain(production, spec, None)] == [{}]
    spec = RetentionSpec(trace_texts_days=days - 1)
    (would,) = would_retain(production, spec)
    (done,) = retain(production, spec, "me")
    assert dict(would.rows) == dict(done.rows) == {"calls": 2, "observations": 4, "judgements": 2}
    assert files_with(SECRET, store_root) == []
    assert files_with(f"{OTHER} today", store_root) != []
    assert {**figures(production), "erasures": []} == tables
    assert dict(retain(production, spec, None)[0].rows) == {}
    rows = production.query("select kind, selector_hash, erased_by from source.erasures")
    assert rows == [("rule", f"trace_texts_days: {days - 1}", "me")]


def test_traces_that_are_being_judged_wait_for_the_next_time(
    production: Store, store_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with hold_lease(production, evaluation_id("watch"), "judging", wait=False):
        assert dict(retain(production, RetentionSpec(trace_texts_days=1), None)[0].rows) == {}
    assert "trace_texts_days: 1: put off until the next time" in capsys.readouterr().err
    assert retain(production, RetentionSpec(trace_texts_days=1), None)[0].rows["observations"] == 4
    assert files_with(SECRET, store_root) == []


def test_messages_of_old_calls_are_erased_but_not_of_what_is_running(sealed: Store) -> None:
    spec = RetentionSpec(call_texts_days=1)
    with hold_lease(sealed, "group-0", "a run", wait=False):
        (done,) = retain(sealed, spec, None)
    assert dict(done.rows) == {"calls": 4 + 2}
    (done,) = retain(sealed, spec, None)
    assert dict(done.rows) == {"calls": 4}
    assert sealed.query("select count(*), count(*) filter (reusable), sum(cost_usd) from source.calls") == [
        (10, 0, 1.0)
    ]


@pytest.mark.parametrize("packed", [False, True])
def test_old_experiments_are_removed_and_what_is_referred_to_stays(
    store: Store, add: Callable[..., None], make: Make, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, name in enumerate(("gone", "base", "decided", "paired", "labelled", "source", "within", "last")):
        add(name, days=number)
    add("twin", "group-base")
    add("young", name="young", days=(now() - OLD).days)
    add("user", name="young", days=(now() - OLD).days, spec='{"targets":[{"experiment":"source"}]}')
    store.publish("baselines", "b", [make("baselines", baseline_id="b", experiment_id="base")])
    store.publish("decisions", "d", [make("decisions", decision_id="d", candidate_experiment_id="decided")])
    store.publish("comparison_sets", "c", [make("comparison_sets", comparison_id="c", experiments=["paired", "last"])])
    store.publish("labels", "l", [make("labels", batch_id="l", experiment_id="labelled")])
    verdict = {"candidate_experiment_id": "young", "baseline_experiment_id": "within"}
    store.publish("verdicts", "group-young", [make("verdicts", run_group="group-young", **verdict)])
    own = {"candidate_experiment_id": "gone", "baseline_experiment_id": "gone"}
    store.publish("verdicts", "group-gone", [make("verdicts", run_group="group-gone", verdict_id="v", **own)])
    if packed:
        monkeypatch.setattr(evalflows.store.packing, "SETTLED_S", 0.0)
        assert pack(store).n_owner_files
    spec, all_of_them = RetentionSpec(experiments_days=365, keep_last=1), kept(store)
    (would,) = would_retain(store, spec)
    assert (would.experiments, kept(store)) == (["gone"], all_of_them)
    (done,) = retain(store, spec, None)
    assert done.experiments == ["gone"] and dict(done.rows) == dict(would.rows)
    assert dict(done.rows) == {"estimates": 1, "outputs": 1, "judgements": 1, "experiments": 1, "verdicts": 1}
    assert kept(store) == [name for name in all_of_them if name != "gone"]
    for table in ("outputs", "judgements", "estimates"):
        left = [name for (name,) in store.query(f"select experiment_id from source.{table} order by 1")]
        assert left == kept(store)
    assert store.query("select owners from source.erasures") == [(["gone"],)]
    assert not any("gone" in str(path) for path in Path(store.layout.root).rglob("*"))


def test_an_interrupted_removal_goes_on(
    store: Store, add: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    add("gone")
    spec = RetentionSpec(experiments_days=1, keep_last=0)
    with monkeypatch.context() as patch:
        remove = evalflows.store.retention._remove
        patch.setattr(
            evalflows.store.retention,
            "_remove",
            lambda store, table, owners: pytest.fail() if table == "judgements" else remove(store, table, owners),
        )
        with pytest.raises(pytest.fail.Exception):
            retain(store, spec, None)
    assert kept(store) == ["gone"] and store.read("outputs", "gone") == []
    assert retain(store, spec, None)[0].experiments == ["gone"]
    assert kept(store) == [] and examine(store).is_sound


def test_what_runs_and_the_newest_of_each_name_stay(store: Store, add: Callable[..., None]) -> None:
    for number in range(4):
        add(f"exp-{number}", days=number)
    spec = RetentionSpec(experiments_days=1, keep_last=2)
    with hold_lease(store, "group-exp-0", "a run", wait=False):
        assert retain(store, spec, None)[0].experiments == ["exp-1"]
    assert retain(store, spec, None)[0].experiments == ["exp-0"]
    assert kept(store) == ["exp-2", "exp-3"]
