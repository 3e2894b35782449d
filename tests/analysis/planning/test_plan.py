"""Plans: the sizes that a store with known variances leads to, and the calls that a spec would make."""

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from evalflows.analysis.planning.metrics import MetricPlan
from evalflows.analysis.planning.plan import Plan
from evalflows.analysis.planning.sample_sizes import Sizes
from evalflows.execution.prepared import prepare_experiment
from evalflows.execution.resolve import target_version
from evalflows.flows.api.planning import plan, sentences_of
from evalflows.llm.ledger import call_key
from evalflows.specs import ExperimentSpec, InputError
from evalflows.stats import paired_difference
from evalflows.stats.differences.power import needed_examples
from evalflows.store.ingest.datasets import load_dataset
from evalflows.store.parquet import Store
from evalflows.store.records import CallRow, ExperimentRow, OutputRow, ScoreRow, derived_id, to_json

START = datetime(2026, 1, 1, tzinfo=UTC)
Values = npt.NDArray[np.float64]


def rows(n: int, cluster: int | None = None) -> list[dict[str, Any]]:
    """n examples; so many in a cluster, where they come in clusters."""
    of = [{} if cluster is None else {"cluster": f"c{i // cluster}"} for i in range(n)]
    return [
        {"id": f"q{i:05}", "inputs": {"question": f"q{i}?"}, "outputs": {"answer": f"a{i}"}, **of[i]} for i in range(n)
    ]


def spec_of(n: int, cluster: int | None = None, **changes: Any) -> ExperimentSpec:
    """Two recorded targets, judged by a function of the user's own that says nothing of its scores."""
    fields: dict[str, Any] = {
        "name": "planned",
        "dataset": {"rows": rows(n, cluster), "name": "questions"},
        "targets": [{"kind": "recorded", "name": name, "column": "reference_outputs"} for name in ("old", "new")],
        "evaluators": [{"use": "judges:longer_than", "name": "quality"}],
    }
    return ExperimentSpec.model_validate(fields | changes)


def keep(
    sides: Mapping[str, Values], spec: ExperimentSpec, *, metric: str = "quality", yes_no: bool = False, age: int = 0
) -> None:
    """Keep a start with an experiment for each, of these values: a row an example, a column a repetition."""
    store = Store()
    loaded = load_dataset(store, spec.dataset)
    snapshot = loaded.keep(store)
    ids = [example.example_id for example in loaded.selected]
    for name, values in sides.items():
        owner = f"exp-{age}-{name}"
        scores = [
            _score(owner, ids[place], repetition, metric, float(value), yes_no)
            for place, runs in enumerate(values)
            for repetition, value in enumerate(runs)
            if not math.isnan(value)
        ]
        row = _row(owner, name, snapshot, values.shape, spec, START - timedelta(days=age))
        store.publish("scores", owner, scores)
        store.publish("experiments", owner, [row])


def _score(owner: str, example: str, repetition: int, metric: str, value: float, yes_no: bool) -> ScoreRow:
    run = derived_id(owner, example, repetition)
    return ScoreRow(
        score_id=derived_id(run, None, metric, "v1"),
        subject_kind="run",
        subject_id=run,
        experiment_id=owner,
        run_id=run,
        example_id=example,
        repetition=repetition,
        metric=metric,
        value=value,
        data_type="BOOLEAN" if yes_no else "NUMERIC",
        status="scored",
        evaluator=metric,
        evaluator_version="v1",
    )


def _row(
    owner: str, name: str, snapshot: str, shape: Sequence[int], spec: ExperimentSpec, at: datetime, **fields: Any
) -> ExperimentRow:
    given: dict[str, Any] = {
        "experiment_id": owner,
        "run_group": f"group of {at:%Y-%m-%d}",
        "name": name,
        "dataset_name": "questions",
        "snapshot_id": snapshot,
        "n_examples": shape[0],
        "repetitions": shape[1],
        "chunk_size": 250,
        "target": name,
        "target_kind": "recorded",
        "target_version": "v1",
        "evaluators": "[]",
        "spec": to_json({"targets": [{"name": target.name} for target in spec.targets]}),
        "evalflows_version": "0",
        "state": "completed",
        "started_at": at,
    }
    return ExperimentRow(**given | fields)


def normal(n: int, k: int, *, between: float, within: float, seed: int = 0, cluster: int = 1) -> dict[str, Values]:
    """Two sides whose true differences have this sd from example (or cluster) to example, and the repetitions of each
    side this one; what is hard is so for both, and cancels."""
    draw = np.random.default_rng(seed).normal
    hard = draw(0, 5, (n, 1))
    differences = np.repeat(draw(0, between, (n // cluster, 1)), cluster, axis=0)
    return {"old": hard + draw(0, within, (n, k)), "new": hard + differences + draw(0, within, (n, k))}


def only(found: Plan) -> MetricPlan:
    (one,) = found.metrics
    return one


def wanted(found: Plan) -> Sizes:
    (one,) = only(found).wanted
    return one


def test_examples_by_repetitions_are_those_of_the_true_variances() -> None:
    """omega^2 + 2 sigma^2 / K, within 10 %: from 1,500 examples, the standard error of a variance is 4 % of it."""
    between, within, effect = 1.0, 1.0, 0.15
    spec = spec_of(1500, repetitions=2)
    keep(normal(1500, 4, between=between, within=within, seed=1), spec)
    sizes = wanted(plan(spec, effect))
    assert [way.repetitions for way in sizes.ways] == [1, 2, 3, 5]
    for way in sizes.ways:
        true = math.sqrt(between**2 + 2 * within**2 / way.repetitions)
        assert way.examples == pytest.approx(needed_examples(effect, sd=true), rel=0.1)
    one, *_, five = sizes.ways
    assert one.examples / five.examples == pytest.approx((1 + 2) / (1 + 0.4), rel=0.1)


def test_what_the_dataset_would_show_is_that_of_its_size_and_repetitions() -> None:
    """(1.96 + 0.84) sqrt((omega^2 + 2 sigma^2 / K) / n), by 300 examples, whatever the store has."""
    keep(normal(600, 4, between=0.5, within=1.0), spec_of(600))
    for repetitions in (1, 3):
        found = only(plan(spec_of(300, repetitions=repetitions)))
        true = (1.960 + 0.842) * math.sqrt((0.25 + 2 / repetitions) / 300)
        assert found.minimum_detectable == pytest.approx(true, rel=0.1)
        assert found.wanted == ()


def test_without_repetitions_nothing_is_said_of_what_they_would_save() -> None:
    spec = spec_of(1500)
    keep(normal(1500, 1, between=0.5, within=1.0), spec)
    found = plan(spec, 0.1)
    (way,) = wanted(found).ways
    assert way.examples == pytest.approx(needed_examples(0.1, sd=1.5), rel=0.1)
    assert any("whether repetitions would save examples is unknown" in said for said in sentences_of(found))


def test_clusters_are_the_unit_and_what_they_cost_is_said() -> None:
    """Ten examples a cluster, all alike in truth: the variance of a mean is omega^2 / G + 2 sigma^2 / (K n)."""
    spec = spec_of(3000, cluster=10)
    keep(normal(3000, 2, between=0.5, within=0.5, cluster=10), spec)
    found = plan(spec, 0.05)
    spread = only(found).spread
    assert spread is not None and (spread.unit, spread.n_clusters) == ("cluster", 300)
    for way in wanted(found).ways:
        clusters = needed_examples(0.05, sd=math.sqrt(0.25 + 2 * 0.25 / way.repetitions / 10))
        assert way.clusters == pytest.approx(clusters, rel=0.2)  # from 300 clusters, its standard error is 8 %
        assert way.examples == 10 * (way.clusters or 0)
    assert spread.design_effect == pytest.approx(10 * (0.25 + 0.025) / (0.25 + 0.25), rel=0.15)
    assert any("design effect of clusters" in said for said in sentences_of(found))


def test_clusters_of_which_nothing_is_known_are_not_counted_and_that_is_said() -> None:
    keep(normal(200, 2, between=0.5, within=0.5), spec_of(200))
    found = plan(spec_of(200, cluster=10, dataset={"rows": rows(200, 10), "name": "questions"}), 0.1)
    assert only(found).spread is not None
    assert any("the effect of clusters on quality is unknown" in s for s in sentences_of(found))


def yes_no(n: int, *, gained: float, n_missing: float, seed: int = 0) -> dict[str, Values]:
    """So many examples that only the new one gets right, and only the old one; half of the others are right in both."""
    kinds = np.random.default_rng(seed).random(n)
    both = np.random.default_rng(seed + 1).random(n) < 0.5
    new = np.where(kinds < gained, 1.0, np.where(kinds < gained + n_missing, 0.0, both))
    old = np.where(kinds < gained, 0.0, np.where(kinds < gained + n_missing, 1.0, both))
    return {"old": old[:, None].astype(float), "new": new[:, None].astype(float)}


def test_the_examples_of_a_plan_find_the_effect_as_often_as_it_says() -> None:
    """Yes and no, 12 % gained and 7 % lost: of 400 runs with the planned number, four in five are significant.

    The plan is of t, the test McNemar's exact one, which finds it in 77 %; of 400 runs, the standard error is 2 %.
    """
    spec = spec_of(4000, evaluators=["contains"])
    keep(yes_no(4000, gained=0.12, n_missing=0.07), spec, metric="contains", yes_no=True)
    (way,) = wanted(plan(spec, 0.05)).ways
    found = 0
    for seed in range(400):
        sides = yes_no(way.examples, gained=0.12, n_missing=0.07, seed=10 + 2 * seed)
        one = paired_difference(sides["new"][:, 0], sides["old"][:, 0], binary=True)
        found += one.p_value is not None and one.p_value <= 0.05 and (one.difference or 0) > 0
    assert 0.71 < found / 400 < 0.86


def test_a_guard_takes_what_shows_an_equal_candidate_within_its_margin() -> None:
    """The lower end of the interval of 95 % lies above - margin in four of five runs of two equal systems."""
    spec = spec_of(1500, gates=[{"name": "ship", "non_inferiority": {"quality": 0.1}}])
    keep(normal(1500, 1, between=0.5, within=0.5), spec)
    found = plan(spec)
    (way,) = wanted(found).ways
    sd = math.sqrt(0.25 + 0.5)
    assert way.examples == pytest.approx(needed_examples(0.1, sd=sd), rel=0.1)
    draw = np.random.default_rng(3)
    lows = [paired_difference(draw.normal(0, sd, way.examples), np.zeros(way.examples)).low for _ in range(400)]
    assert 0.73 < np.mean([low is not None and low > -0.1 for low in lows]) < 0.87
    assert any(
        "for an equally good candidate to pass the non-inferiority margin of 0.100" in s for s in sentences_of(found)
    )


def test_a_goal_takes_more_the_nearer_the_effect_is_to_it_and_one_below_it_is_told() -> None:
    spec = spec_of(500, gates=[{"superiority": {"quality": 0.1}}])
    keep(normal(500, 1, between=0.5, within=0.5), spec)
    kinds = {one.wanted.purpose: one.ways[0].examples for one in only(plan(spec, 0.15)).wanted}
    assert kinds["superiority"] == pytest.approx(9 * kinds["difference"], rel=0.05), "0.15 - 0.10 is a third of 0.15"
    below = plan(spec, 0.05)
    assert [one.wanted.purpose for one in only(below).wanted] == ["difference"]
    assert any(
        "an improvement of 0.050 does not meet the superiority margin of 0.1" in said for said in sentences_of(below)
    )
    alone = only(plan(spec)).wanted
    assert [(one.wanted.purpose, one.wanted.said) for one in alone] == [("difference", 0.1)]


def test_of_yes_and_no_a_difference_is_never_taken_to_vary_less_than_it_must() -> None:
    """One in a hundred differed; a difference of 0.2 means that one in five does."""
    spec = spec_of(1000, evaluators=["contains"])
    keep(yes_no(1000, gained=0.005, n_missing=0.005), spec, metric="contains", yes_no=True)
    found = plan(spec_of(40, evaluators=["contains"]), 0.2)
    assert wanted(found).ways[0].examples == needed_examples(0.2, sd=math.sqrt(0.2 * 0.8))
    seen = only(found).minimum_detectable or 0.0
    assert seen > 0.1 and needed_examples(seen, sd=math.sqrt(seen - seen**2)) == pytest.approx(40, abs=2)


def test_the_newest_start_with_enough_examples_counts() -> None:
    keep(normal(300, 1, between=2.0, within=0.1), spec_of(300), age=9)
    keep(normal(300, 1, between=1.0, within=0.1), spec_of(300), age=5)
    keep(normal(5, 1, between=9.0, within=0.1), spec_of(5), age=1)
    found = only(plan(spec_of(300), 0.1)).spread
    assert found is not None and found.variance == pytest.approx(1.0, rel=0.2)
    assert found.basis == "new against old of 2025-12-27, 300 examples"


def test_another_dataset_s_experiments_come_last_and_that_is_said() -> None:
    other = spec_of(300, dataset={"rows": rows(300), "name": "others"})
    keep(normal(300, 1, between=1.0, within=0.1), other)
    store = Store()
    for owner in ("exp-0-old", "exp-0-new"):
        (row,) = store.read("experiments", owner)
        changed = {name: getattr(row, name) for name in row.__slots__} | {"dataset_name": "others"}
        store.publish("experiments", owner, [ExperimentRow(**changed)])
    here = spec_of(100)
    found = only(plan(here, 0.1)).spread
    assert found is not None and found.basis.endswith("of another dataset (others)")
    keep(normal(100, 1, between=3.0, within=0.1), here, age=30)
    found = only(plan(here, 0.1)).spread
    assert found is not None and found.basis == "new against old of 2025-12-02, 100 examples"


def test_of_one_experiment_the_other_side_is_taken_to_be_independent() -> None:
    spec = spec_of(1000)
    keep({"old": np.random.default_rng(0).normal(0, 1, (1000, 1))}, spec)
    found = only(plan(spec, 0.2))
    assert found.spread is not None and found.spread.source == "one_side"
    assert found.spread.variance == pytest.approx(2.0, rel=0.1)
    assert found.wanted[0].ways[0].examples == pytest.approx(needed_examples(0.2, sd=math.sqrt(2)), rel=0.1)


def test_two_starts_on_the_same_examples_are_two_sides() -> None:
    spec, sides = spec_of(400), normal(400, 1, between=1.0, within=0.1)
    keep({"old": sides["old"]}, spec, age=3)
    keep({"new": sides["new"]}, spec, age=2)
    found = only(plan(spec, 0.2)).spread
    assert found is not None and found.source == "two_sides"
    assert found.variance == pytest.approx(1.02, rel=0.15)


def test_without_history_a_metric_within_bounds_is_guessed_with_caution() -> None:
    """sqrt(0.5 * 0.5 + 0.5 * 0.5); what says that it returns a bool is yes or no."""
    found = plan(spec_of(50, evaluators=["contains"]), 0.1)
    assert wanted(found).ways[0].examples == needed_examples(0.1, sd=math.sqrt(0.5))
    assert any(said.startswith("contains: estimated from a cautious guess") for said in sentences_of(found))
    scale = {"use": "rubric", "args": {"rubric": "good"}, "connection": "local"}  # from 1 to 5
    assert wanted(plan(spec_of(50, evaluators=[scale]), 0.4)).ways[0].examples == wanted(found).ways[0].examples


def test_where_nothing_bounds_a_metric_that_was_never_measured_it_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "free_scores.py").write_text("def free(outputs):\n    return 3.5\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = plan(spec_of(50, evaluators=["free_scores:free"]), 0.1)
    assert only(found).spread is None and only(found).wanted == ()
    assert "free: unknown, since no experiment in the store has it; run it on 50 examples first" in sentences_of(found)


def test_pairs_that_never_differed_do_not_mean_that_none_ever_will() -> None:
    """Of 60 alike, up to 3 in 60 others; but a difference of 0.1 means that one pair in ten differs."""
    spec = spec_of(60, evaluators=["contains"])
    same = np.ones((60, 1))
    keep({"old": same, "new": same}, spec, metric="contains", yes_no=True)
    found = only(plan(spec, 0.1)).spread
    assert found is not None and (found.source, found.variance) == ("guess", 0.05)
    assert "all differences were the same in new against old" in found.basis
    assert wanted(plan(spec, 0.1)).ways[0].examples == needed_examples(0.1, sd=math.sqrt(0.09))
    assert wanted(plan(spec, 0.01)).ways[0].examples == needed_examples(0.01, sd=math.sqrt(0.05))


def test_a_sample_takes_as_many_more_examples() -> None:
    keep(normal(400, 1, between=1.0, within=0.1), spec_of(400))
    whole = wanted(plan(spec_of(400), 0.2)).ways[0].examples
    half = plan(spec_of(400, evaluators=[{"use": "judges:longer_than", "name": "quality", "sample_rate": 0.5}]), 0.2)
    assert wanted(half).ways[0].examples == 2 * whole
    ratio = (only(half).minimum_detectable or 0) / (only(plan(spec_of(400))).minimum_detectable or 1)
    assert ratio == pytest.approx(math.sqrt(2), rel=0.02)


CONNECTIONS = {
    "mine": {
        "kind": "endpoint",
        "base_url": "http://127.0.0.1:9/v1",
        "model": "m",
        "api_key_env": "NO_SUCH_KEY_AT_ALL",
        "usd_per_million_input_tokens": 100,
        "usd_per_million_output_tokens": 1000,
    },
    "free": {"kind": "endpoint", "base_url": "http://127.0.0.1:8/v1", "model": "n"},
}


def asking(n: int = 40, **changes: Any) -> ExperimentSpec:
    """Two chat targets on two connections, of which nobody knows the second one's price."""
    chat = {"kind": "chat", "user": "{question}"}
    targets = [chat | {"name": "old", "connection": "mine", "max_tokens": 20}]
    targets += [chat | {"name": "new", "connection": changes.pop("second", "free")}]
    return spec_of(n, **{"targets": targets, "connections": CONNECTIONS, "evaluators": [], **changes})


def test_a_chat_target_is_asked_once_an_example_and_repetition() -> None:
    found = plan(asking(repetitions=3))
    assert [(line.who, line.calls, line.in_ledger) for line in found.calls] == [("old", 120, 0), ("new", 120, 0)]
    old, new = found.calls
    assert old.size.basis == "upper estimate" and old.size.tokens_out == 20
    assert old.usd == pytest.approx(120 * (math.ceil(old.size.tokens_in or 0) * 100 + 20 * 1000) / 1e6)
    assert (new.usd, found.total.usd, found.total.unpriced) == (None, None, ("new",))
    said = sentences_of(found)
    assert "this run makes 240 model calls: cost unknown" in said
    assert "the cost of new is unknown, since the tokens or the price are" in said


def paid(owner: str, **fields: Any) -> CallRow:
    given: dict[str, Any] = {
        "call_id": derived_id(owner, *map(str, fields.values())),
        "call_key": "k",
        "experiment_id": owner,
        "connection": "mine",
        "base_url": "http://127.0.0.1:9/v1",
        "model": "m",
        "request": "{}",
        "status": "ok",
        "reusable": True,
        "tokens_in": 30,
        "tokens_out": 7,
        "cost_usd": 0.01,
        "started_at": START,
    }
    return CallRow(**given | fields)


def test_what_the_ledger_has_is_not_paid_again_unless_it_is_to_be_fresh() -> None:
    requests = [
        {"model": "m", "messages": [{"role": "user", "content": f"q{i}?"}], "max_tokens": 20} for i in range(15)
    ]
    keys = [call_key("http://127.0.0.1:9/v1", request, 0) for request in requests]
    Store().publish("calls", "exp-x", [paid("exp-x", call_key=key) for key in keys])
    old = plan(asking()).calls[0]
    assert (old.calls, old.in_ledger) == (40, 15)
    assert old.usd == pytest.approx(25 * (30 * 100 + 7 * 1000) / 1e6), "as other targets' calls to this model"
    assert old.size.basis == "15 earlier calls of other targets to this model"
    assert plan(asking(use_cache=False)).calls[0].in_ledger == 0


def test_two_targets_that_ask_the_same_pay_once() -> None:
    chat = {"kind": "chat", "user": "{question}", "connection": "mine"}
    same = [chat | {"name": "old"}, chat | {"name": "new"}]
    assert [line.in_ledger for line in plan(asking(targets=same)).calls] == [0, 40]
    assert [line.in_ledger for line in plan(asking(targets=same, use_cache=False)).calls] == [0, 0]


def test_the_same_version_s_calls_come_before_others_to_the_model() -> None:
    spec = asking(second="mine")
    version = target_version(spec.targets[0], spec.connections)
    store = Store()
    snapshot = load_dataset(store, spec.dataset).keep(store)
    store.publish(
        "experiments", "exp-x", [_row("exp-x", "old", snapshot, (40, 1), spec, START, target_version=version)]
    )
    store.publish("calls", "exp-x", [paid("exp-x", call_key="a", tokens_in=100, tokens_out=9)])
    store.publish("calls", "exp-y", [paid("exp-y", call_key="b", tokens_in=200, tokens_out=5)])
    old, new = (line.size for line in plan(spec).calls)
    assert (old.tokens_in, old.tokens_out, old.basis) == (100, 9, "1 earlier calls of this target")
    assert (new.tokens_in, new.tokens_out, new.basis) == (150, 7, "2 earlier calls of other targets to this model")


def test_a_python_target_s_calls_are_those_of_its_runs_before_or_not_known() -> None:
    own = {"kind": "python", "name": "own", "function": "judges:upper"}
    spec = asking(targets=[own], repetitions=2)
    found = plan(spec)
    assert (found.calls[0].calls, found.total.unknown) == (None, ("own",))
    assert any("the calls of own are unknown and not counted" in said for said in sentences_of(found))
    version, store = target_version(spec.targets[0], spec.connections), Store()
    snapshot = load_dataset(store, spec.dataset).keep(store)
    store.publish("experiments", "exp-x", [_row("exp-x", "own", snapshot, (4, 1), spec, START, target_version=version)])
    outputs = [
        OutputRow(
            run_id=f"r{i}",
            experiment_id="exp-x",
            example_id=f"q{i:05}",
            repetition=0,
            status="ok",
            calls=2,
            calls_cached=1,
        )
        for i in range(4)
    ]
    store.publish("outputs", "exp-x", outputs)
    store.publish("calls", "exp-x", [paid("exp-x")])
    (line,) = plan(spec).calls
    assert line.calls == 3 * 80
    assert line.usd == pytest.approx(240 * 0.01)


def test_judges_are_counted_by_answers_repeats_samples_controls_and_tiers() -> None:
    """Two targets, 40 examples, 2 repetitions: 160 answers; 10 controls are 30 judgements; cascades at most."""
    asks = {"connection": "mine"}
    evaluators = [
        {"use": "correctness", "controls": 10, **asks},
        {"use": "rubric", "args": {"rubric": "good", "repeats": 3}, "sample_rate": 0.25, **asks},
        {"use": "judges:says_correct", **asks},
        {
            "name": "right",
            "use": "cascade",
            "tiers": ["exact_match", {"use": "criteria", **asks}, {"use": "instruction_following", **asks}],
            "controls": 5,
        },
        "contains",
    ]
    found = plan(asking(evaluators=evaluators, repetitions=2))
    counted = {line.who: (line.kind, line.calls, line.at_most) for line in found.calls[2:]}
    assert counted == {
        "correctness": ("judge", 160, True),
        "correctness: controls": ("controls", 30, True),
        "rubric": ("judge", 3 * 40, True),
        "says_correct": ("judge", 160, True),
        "right: criteria": ("judge", 160, True),
        "right: instruction_following": ("judge", 160, True),
        "right: controls": ("controls", 15, True),
    }
    own = next(line for line in found.calls if line.who == "says_correct")
    assert (own.size.basis, own.note) == ("unknown", "assumed: one call per judgement")


@pytest.mark.parametrize(
    ("compare", "calls"),
    [({}, 3 * 80), ({"both_orders": True}, 6 * 80), ({"pairs": "baseline"}, 2 * 80), ({"seed": 3}, 3 * 80)],
)
def test_pairs_are_counted_by_pairs_and_orders(compare: dict[str, Any], calls: int) -> None:
    chat = {"kind": "chat", "user": "{question}", "connection": "mine"}
    targets = [chat | {"name": name} for name in ("a", "b", "c")]
    judge = {"use": "pairwise_preference", "connection": "mine"}
    found = plan(asking(targets=targets, repetitions=2, compare={"evaluators": judge, **compare}))
    assert (found.calls[-1].kind, found.calls[-1].calls) == ("pairwise", calls)


def test_a_judge_is_not_asked_where_there_is_no_reference() -> None:
    half = [row if i % 2 else {k: v for k, v in row.items() if k != "outputs"} for i, row in enumerate(rows(40))]
    found = plan(asking(dataset={"rows": half}, evaluators=[{"use": "correctness", "connection": "mine"}]))
    assert found.calls[-1].calls == 2 * 20


def test_a_judge_s_own_calls_before_say_how_often_it_asks() -> None:
    spec = asking(evaluators=[{"use": "judges:says_correct", "connection": "mine"}])
    version = prepare_experiment(spec).described["says_correct"]["version"]
    score = _score("exp-x", "q00000", 0, "says_correct", 1.0, True)
    given = {name: getattr(score, name) for name in score.__slots__}
    Store().publish("scores", "exp-x", [ScoreRow(**given | {"evaluator_version": version, "calls": 2})])
    found = plan(spec).calls[-1]
    assert (found.calls, found.note) == (160, "2 calls per judgement, as in 1 before")


def test_the_cheapest_way_is_by_money_then_by_calls() -> None:
    """Repetitions of a noisy target save examples and not calls; a judge of controls costs the same for all."""
    spec = asking(300, second="mine", evaluators=[{"use": "judges:longer_than", "name": "quality"}])
    keep(normal(300, 3, between=0.5, within=1.0), spec)
    sizes = wanted(plan(spec, 0.1))
    costs = [way.usd for way in sizes.ways]
    assert None not in costs and sizes.cheapest is not None
    assert sizes.cheapest.usd == min(cost for cost in costs if cost is not None)
    assert [way.calls for way in sizes.ways] == [2 * way.examples * way.repetitions for way in sizes.ways]
    assert sizes.cheapest.repetitions == 1, "what one call more an example saves is less than one more example does"


def test_a_budget_that_will_not_do_is_told() -> None:
    found = sentences_of(plan(asking(second="mine", budget_usd=0.01, max_calls=79)))
    assert any(said.startswith("budget_usd: 0.01 may not be enough") for said in found)
    assert any(said.startswith("max_calls: 79 may not be enough") for said in found)
    enough = sentences_of(plan(asking(second="mine", budget_usd=100, max_calls=80)))
    assert not any("may not be enough" in said for said in enough)


def test_a_plan_leaves_the_store_as_it_was(store_root: Path) -> None:
    spec = asking(evaluators=[{"use": "correctness", "connection": "mine", "controls": 5}])
    keep(normal(40, 1, between=1.0, within=0.1), spec_of(40))
    before = {path: path.read_bytes() for path in store_root.rglob("*") if path.is_file()}
    plan(spec, 0.1)
    assert {path: path.read_bytes() for path in store_root.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"effect": 0.0}, "effect: got 0, wanted a number above 0"),
        ({"effect": math.nan}, "effect: got nan, wanted a number above 0"),
        ({"power": 0.01}, "power: got 0.01, wanted a number between 0.025 and 1"),
        ({"power": 1.0}, "power: got 1, wanted"),
        ({"metrics": ["charm"]}, "metric: no evaluator gives 'charm', wanted some of contains, latency"),
    ],
)
def test_what_cannot_be_planned_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        plan(spec_of(5, evaluators=["contains"]), **given)


def test_an_effect_too_small_for_any_dataset_has_a_reason() -> None:
    keep(normal(100, 1, between=1.0, within=1.0), spec_of(100))
    found = plan(spec_of(100), 1e-12)
    assert wanted(found).ways == () and "wanted one detectable with" in (wanted(found).reason or "")
    assert json.dumps(sentences_of(found))


def test_measures_and_what_is_made_of_repetitions_can_be_planned_for() -> None:
    spec = spec_of(300, repetitions=2, metrics={"quality": {"pass_k": [2], "pass_threshold": 0.0}})
    keep(normal(300, 2, between=0.5, within=1.0), spec)
    found = plan(spec, 0.1, metrics=["quality pass^2", "latency"])
    first, second = found.metrics
    assert first.spread is not None and first.spread.source == "two_sides" and not first.spread.is_split
    assert second.spread is None and second.reason is not None and "no experiment in the store has it" in second.reason
