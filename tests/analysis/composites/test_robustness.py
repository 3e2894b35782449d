"""How far a winner rests on the weights of a composite: from the rows of a start to checks in words."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from evalflows.analysis.composites.parts import composite_runs
from evalflows.reports.robustness import robustness_batch, robustness_report
from evalflows.specs.errors import InputError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.store.catalog import ask
from evalflows.store.parquet import Store
from evalflows.store.records import CheckRow, ExampleRow, ExperimentRow, OutputRow, ScoreRow, from_json, to_json
from evalflows.tasks.combine import _composites
from evalflows.tasks.robustness import composite_robustness

START = datetime(2026, 1, 1, tzinfo=UTC)
GROUP = "start-1"
QUALITY = {"name": "quality", "weights": {"contains": 3, "short": 1}}
SPEC = {
    "name": "demo",
    "dataset": {"path": "rows.jsonl"},
    "evaluators": ["contains", {"use": "length_between", "name": "short"}],
    "composites": [QUALITY],
}

Scores = Mapping[str, Sequence[float | str | None]]
"""By metric, what each example's run got: a number, a status; None is no row."""

PLAIN = {"contains": [1.0] * 14 + [0.0] * 6, "short": [1.0] * 4 + [0.0] * 16}
BRIEF = {"contains": [1.0] * 12 + [0.0] * 8, "short": [1.0] * 18 + [0.0] * 2}
"""Means as in stats' test: contains 0.7 and 0.6, short 0.2 and 0.9."""


def start(systems: Mapping[str, Scores], lengths: Mapping[str, int] | None = None, **changes: Any) -> Store:
    """The experiments of one start, with their composites as they are combined."""
    targets = [{"kind": "python", "name": name, "function": "mine:answer"} for name in systems]
    spec = ExperimentSpec.model_validate({**SPEC, "targets": targets, **changes})
    store, n = Store(), len(next(iter(next(iter(systems.values())).values())))
    examples = [ExampleRow(snapshot_id="snap-1", example_id=f"e{i:02}", position=i, inputs="{}") for i in range(n)]
    store.publish("examples", "snap-1", examples)
    for name, scores in systems.items():
        _experiment(store, spec, name, scores, (lengths or {}).get(name, 10))
    return store


def _experiment(store: Store, spec: ExperimentSpec, name: str, scores: Scores, length: int) -> None:
    owner = f"exp-{name}"
    n = len(next(iter(scores.values())))
    outputs = [
        OutputRow(
            run_id=f"{owner}-{i}",
            experiment_id=owner,
            example_id=f"e{i:02}",
            repetition=0,
            outputs="{}",
            length=length,
            status="ok",
            started_at=START,
        )
        for i in range(n)
    ]
    rows = [
        _score(output, metric, one)
        for metric, ones in scores.items()
        for output, one in zip(outputs, ones, strict=True)
        if one is not None
    ]
    of_run = {output.run_id: [row for row in rows if row.run_id == output.run_id] for output in outputs}
    ready: Any = SimpleNamespace(spec=spec)
    made = [row for one in spec.composites for row in _composites(ready, one, outputs, of_run)]
    store.publish("outputs", owner, outputs)
    store.publish("scores", owner, [*rows, *made])
    store.publish("experiments", owner, [_row(spec, owner, name, n)])


def _score(output: OutputRow, metric: str, one: float | str) -> ScoreRow:
    said: dict[str, Any] = {"status": one} if isinstance(one, str) else {"status": "scored", "value": one}
    return ScoreRow(
        score_id=f"{output.run_id}-{metric}",
        subject_kind="run",
        subject_id=output.run_id,
        experiment_id=output.experiment_id,
        run_id=output.run_id,
        example_id=output.example_id,
        repetition=0,
        metric=metric,
        evaluator=metric,
        evaluator_version="v1",
        data_type="NUMERIC",
        **said,
    )


def _row(spec: ExperimentSpec, owner: str, name: str, n: int) -> ExperimentRow:
    return ExperimentRow(
        experiment_id=owner,
        run_group=GROUP,
        name=f"demo-{name}",
        snapshot_id="snap-1",
        n_examples=n,
        repetitions=1,
        chunk_size=10,
        target=name,
        target_kind="python",
        target_version="v1",
        evaluators="[]",
        spec=to_json(spec.model_dump(mode="json")),
        evalflows_version="0",
        state="completed",
        started_at=START,
    )


def checks(store: Store, reference: str = "demo", **given: Any) -> dict[str, CheckRow]:
    group = composite_robustness.fn(reference, **given)
    assert group == GROUP
    rows: list[CheckRow] = store.read("checks", robustness_batch(group))
    return {f"{row.subject_id} {row.name}": row for row in rows}


def test_the_demo_case_is_told_in_words_and_figures() -> None:
    store = start({"plain": PLAIN, "brief": BRIEF})
    found = checks(store)["quality weights"]
    seen = from_json(found.observed)
    assert seen["weights"] == {"contains": 0.75, "short": 0.25}
    assert seen["scores"] == pytest.approx({"plain": 0.575, "brief": 0.675})
    assert (seen["leaders"], seen["shares"]) == (["brief"], pytest.approx({"plain": 0.125, "brief": 0.875}, abs=0.02))
    assert "quality: brief leads at the declared weights (contains 0.75, short 0.25)" in str(found.message)
    assert "over all possible weights, brief still leads in 88 %, plain leads in 12 % (10000" in str(found.message)
    assert "with contains at 0.90 instead of 0.75, plain leads" in str(found.message)
    assert (found.passed, found.n_checked, found.n_unexpected) == (False, 4, 1)
    assert (found.subject_kind, found.severity) == ("experiment", "warning")


def test_a_winner_by_far_stays_whatever_is_weighed_how() -> None:
    store = start({"plain": PLAIN, "best": {"contains": [1.0] * 20, "short": [1.0] * 20}})
    found = checks(store)["quality weights"]
    assert found.passed is True
    assert "changing any one weight by 20 % does not change the winner" in str(found.message)
    assert "best still leads in 100 %" in str(found.message)


def test_a_small_change_leaves_the_winner_where_a_large_one_does_not() -> None:
    store = start({"plain": PLAIN, "brief": BRIEF})
    assert checks(store, change=0.1)["quality weights"].passed is True
    assert checks(store, change=0.2)["quality weights"].passed is False
    with pytest.raises(InputError, match="change: got 20, wanted more than 0 and less than 1"):
        checks(store, change=20)


def test_scores_at_the_declared_weights_are_those_of_the_results() -> None:
    """Also with parts left out, requirements not met, failures, and whatever way of combining."""
    rng = np.random.default_rng(0)
    for how in ("weighted_mean", "geometric_mean", "minimum"):
        systems: dict[str, Scores] = {
            name: {metric: [*rng.choice([0.0, 0.5, 1.0], 17).tolist(), "failed", "failed", 1.0] for metric in PLAIN}
            for name in ("one", "two")
        }
        systems["one"]["short"][-2] = "not_applicable"  # type: ignore[index]
        systems["two"]["short"][-2] = 0.5  # type: ignore[index]
        spec = QUALITY | {"aggregation": how, "missing": "leave_out", "requirements": {"contains": 0.1}}
        store = start(systems, composites=[spec])
        row_of = [store.read("experiments", f"exp-{name}")[0] for name in systems]
        (composite,) = ExperimentSpec.model_validate_json(row_of[0].spec).composites
        found = composite_runs(store, row_of, composite)
        values = [
            {row.example_id: row.value for row in store.read("scores", row.experiment_id) if row.metric == "quality"}
            for row in row_of
        ]
        both = [one for one in values[0] if values[0][one] is not None and values[1][one] is not None]
        assert found.runs is not None and found.n_examples == len(both)
        wanted = [np.mean([of_one[one] for one in both]) for of_one in values]
        assert found.runs.scores([[3, 1]])[0] == pytest.approx(wanted), how
        assert sum(found.n_unmet) > 0


def test_repetitions_are_averaged_within_an_example_first() -> None:
    """The first example of plain, a right one, is answered four times more: it counts no more than another."""
    store = start({"plain": PLAIN, "brief": BRIEF})
    scores: list[ScoreRow] = store.read("scores", "exp-plain")
    more = [
        replace(score, score_id=f"{score.score_id}-{repetition}", repetition=repetition)
        for score in scores
        if score.example_id == "e00"
        for repetition in range(1, 5)
    ]
    store.publish("scores", "exp-plain", [*scores, *more])
    seen = from_json(checks(store)["quality weights"].observed)
    assert seen["scores"] == pytest.approx({"plain": 0.575, "brief": 0.675})


def test_a_drawn_example_counts_for_those_that_were_not() -> None:
    """Of plain's and brief's first ten examples one in two was drawn: they count twice."""
    store = start({"plain": PLAIN, "brief": BRIEF})
    for name in ("plain", "brief"):
        scores: list[ScoreRow] = store.read("scores", f"exp-{name}")
        halved = [replace(one, sampling_rate=0.5 if str(one.example_id) < "e10" else None) for one in scores]
        store.publish("scores", f"exp-{name}", halved)
    seen = from_json(checks(store)["quality weights"].observed)
    contains, short = (24 / 30, 22 / 30), (8 / 30, 28 / 30)
    wanted = {name: 0.75 * contains[at] + 0.25 * short[at] for at, name in enumerate(("plain", "brief"))}
    assert seen["scores"] == pytest.approx(wanted)


def test_examples_that_only_some_have_are_left_out_and_told() -> None:
    n_missing: Scores = {**PLAIN, "short": ["failed", "failed", *PLAIN["short"][2:]]}
    message = str(checks(start({"plain": n_missing, "brief": BRIEF}))["quality weights"].message)
    assert "2 examples are left out because not every system has quality" in message
    assert "left out" not in str(checks(start({"plain": PLAIN, "brief": BRIEF}))["quality weights"].message)


def test_an_unmet_requirement_is_reported_and_costs_under_all_weights() -> None:
    gated = QUALITY | {"requirements": {"contains": 1}}
    found = checks(start({"plain": PLAIN, "brief": BRIEF}, composites=[gated]))["quality weights"]
    assert "an unmet requirement, whatever the weights: 6 of plain, 8 of brief" in str(found.message)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"aggregation": "minimum"}, "a minimum has no weights: it is always the worst part"),
        ({"function": "statistics:fmean"}, "statistics:fmean computes it, without weights"),
    ],
)
def test_what_has_no_weights_says_so(change: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "function" in change:
        monkeypatch.setattr(
            "evalflows.execution.composite_scores.load", lambda _: lambda parts: sum(parts.values()) / len(parts)
        )
    found = checks(start({"plain": PLAIN, "brief": BRIEF}, composites=[QUALITY | change]))["quality weights"]
    assert found.passed is None and said in str(found.message)
    assert "over all possible weights" not in str(found.message)


# The Pareto front


def test_the_front_has_declared_directions_and_names_who_beats_whom() -> None:
    worse = {"contains": [1.0] * 10 + [0.0] * 10, "short": [1.0] * 17 + [0.0] * 3}
    lengths = {"plain": 100, "brief": 10, "worse": 20}
    store = start({"plain": PLAIN, "brief": BRIEF, "worse": worse}, lengths, metrics={"length": {}})
    found = checks(store)[f"{GROUP} pareto"]
    seen = from_json(found.observed)
    assert seen["higher_is_better"] == {"contains": True, "short": True, "length": False}
    assert [(one["system"], one["on_front"], one["dominated_by"]) for one in seen["systems"]] == [
        ("worse", False, "brief"),
        ("plain", True, None),
        ("brief", True, None),
    ]
    assert seen["systems"][1]["means"] == pytest.approx({"contains": 0.7, "short": 0.2, "length": 100})
    assert "brief dominates worse: at least as good on every metric, better on at least one" in str(found.message)
    assert found.passed is None and found.n_unexpected == 1


def test_the_metrics_of_the_front_can_be_named() -> None:
    store = start({"plain": PLAIN, "brief": BRIEF}, {"plain": 5, "brief": 10})
    by_length = from_json(checks(store, over=["length", "contains"])[f"{GROUP} pareto"].observed)
    assert {one["system"]: one["dominated_by"] for one in by_length["systems"]} == {"plain": None, "brief": "plain"}
    with pytest.raises(InputError, match=r"over: got 'charm', wanted some of contains, length, quality, short"):
        checks(store, over=["charm"])


# What is meant


def test_an_experiment_s_name_means_its_whole_start_and_a_second_look_replaces_the_first() -> None:
    store = start({"plain": PLAIN, "brief": BRIEF})
    once = checks(store, "demo-plain")
    again = checks(store, GROUP)
    assert list(once) == list(again)
    ((count,),) = ask(store, ("select count(*) from checks", []))[0]
    assert count == 2


def test_of_several_composites_one_can_be_chosen() -> None:
    other = {"name": "other", "weights": ["contains", "short"]}
    store = start({"plain": PLAIN, "brief": BRIEF}, composites=[QUALITY, other])
    assert {one for one in checks(store) if "weights" in one} == {"quality weights", "other weights"}
    assert {one for one in checks(store, composites=["other"]) if "weights" in one} == {"other weights"}
    with pytest.raises(InputError, match="composite 'third': not in 'demo', wanted one of quality, other"):
        checks(store, composites=["third"])


def test_one_system_has_nobody_to_fall_behind() -> None:
    with pytest.raises(InputError, match="has one target, wanted two or more in its run group"):
        checks(start({"plain": PLAIN}))


def test_without_a_composite_and_metrics_there_is_nothing_to_look_into() -> None:
    with pytest.raises(InputError, match="demo: has no composite and fewer than two metrics"):
        checks(start({"plain": PLAIN, "brief": BRIEF}, composites=[]))


def test_what_was_never_looked_into_has_an_empty_report() -> None:
    report = robustness_report(start({"plain": PLAIN, "brief": BRIEF}), GROUP)
    assert (report.composites, report.pareto) == ([], None)
