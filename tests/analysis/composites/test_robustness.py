"""How far a winner rests on the weights of a composite: from the rows of a start to checks."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from past import ABSTAINED, FAILED, Past

from evalflows.analysis.robustness import composite_runs, robustness_batch, robustness_report
from evalflows.engine.composites import composite_rows
from evalflows.engine.results import run_scores
from evalflows.engine.spec_evaluators import composite_version
from evalflows.specs.errors import InputError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.store.records import CheckRow, from_json
from evalflows.store.sql import ask
from evalflows.store.store import Store
from evalflows.tasks.score import composite_robustness

GROUP = "start-1"
QUALITY = {"name": "quality", "weights": {"contains": 3, "short": 1}}
SPEC = {"name": "demo", "evaluators": ["contains", {"use": "length_between", "name": "short"}], "composites": [QUALITY]}
PLAIN = {"contains": [1.0] * 14 + [0.0] * 6, "short": [1.0] * 4 + [0.0] * 16}
BRIEF = {"contains": [1.0] * 12 + [0.0] * 8, "short": [1.0] * 18 + [0.0] * 2}
"""Means as in stats' test: contains 0.7 and 0.6, short 0.2 and 0.9."""


def start(systems: Mapping[str, Any], lengths: Mapping[str, int] | None = None, **changes: Any) -> Past:
    """The experiments of one start, with their composites as they are combined."""
    past = Past()
    targets = [{"kind": "python", "name": name, "function": "mine:answer"} for name in systems]
    spec = past.spec(**{**SPEC, "targets": targets, **changes})
    for name, scores in systems.items():
        row = past.experiment(scores, spec=spec, name=f"demo-{name}", target=name, run_group=GROUP)
        outputs = past.store.read("outputs", row.experiment_id)
        outputs = [replace(output, length=(lengths or {}).get(name, 10)) for output in outputs]
        rows = past.store.read("judgements", row.experiment_id)
        of_run = {output.run_id: [one for one in rows if one.run_id == output.run_id] for output in outputs}
        made = [
            one
            for composite in spec.composites
            for one in composite_rows(
                composite, spec, outputs, of_run, partial(run_scores, version=composite_version(composite, spec))
            )
        ]
        past.store.publish("outputs", row.experiment_id, outputs)
        past.store.publish("judgements", row.experiment_id, [*rows, *made])
    return past


def two(**changes: Any) -> Store:
    return start({"plain": PLAIN, "brief": BRIEF}, **changes).store


def checks(store: Store, reference: str = "demo", **given: Any) -> dict[str, CheckRow]:
    group = composite_robustness.fn(reference, **given)
    assert group == GROUP
    rows: list[CheckRow] = store.read("checks", robustness_batch(group))
    return {f"{row.subject_id} {row.name}": row for row in rows}


def test_the_demo_case_is_told_in_words_and_figures() -> None:
    """By the start's name or that of an experiment; a second look replaces the first; a smaller change is none."""
    store = two()
    empty = robustness_report(store, GROUP)
    assert (empty.composites, empty.pareto) == ([], None)
    found = checks(store)["quality weights"]
    seen = from_json(found.observed)
    assert seen["weights"] == {"contains": 0.75, "short": 0.25}
    assert seen["scores"] == pytest.approx({"plain": 0.575, "brief": 0.675})
    assert (seen["leaders"], seen["shares"]) == (["brief"], pytest.approx({"plain": 0.125, "brief": 0.875}, abs=0.02))
    for part in ("brief leads at the declared weights", "brief still leads in 88 %, plain leads in 12 % (10000"):
        assert part in str(found.message)
    assert "with contains at 0.90 instead of 0.75, plain leads" in str(found.message)
    assert (found.passed, found.n_checked, found.n_unexpected) == (False, 4, 1)
    assert (found.subject_kind, found.severity) == ("experiment", "warning")
    assert checks(store, "demo-plain", change=0.1)["quality weights"].passed is True
    assert ask(store, ("select count(*) from checks", []))[0] == [(2,)]


def test_a_winner_by_far_stays_whatever_is_weighed_how() -> None:
    found = checks(start({"plain": PLAIN, "best": dict.fromkeys(PLAIN, [1.0] * 20)}).store)["quality weights"]
    assert found.passed is True and "best still leads in 100 %" in str(found.message)


def test_scores_at_the_declared_weights_are_those_of_the_results() -> None:
    """Also with parts left out, requirements not met, failures, and whatever way of combining."""
    rng = np.random.default_rng(0)
    for how in ("weighted_mean", "geometric_mean", "minimum"):
        systems = {
            name: {metric: [*rng.choice([0.0, 0.5, 1.0], 17).tolist(), FAILED, FAILED, 1.0] for metric in PLAIN}
            for name in ("one", "two")
        }
        systems["one"]["short"][-2], systems["two"]["short"][-2] = ABSTAINED, 0.5
        spec = QUALITY | {"aggregation": how, "missing": "leave_out", "requirements": {"contains": 0.1}}
        past = start(systems, composites=[spec])
        (composite,) = ExperimentSpec.model_validate_json(past.rows[0].spec).composites
        found = composite_runs(past.store, past.rows, composite)
        scores = [past.store.read("judgements", row.experiment_id) for row in past.rows]
        values = [{one.example_id: one.value for one in some if one.metric == "quality"} for some in scores]
        both = [one for one in values[0] if values[0][one] is not None and values[1][one] is not None]
        assert found.runs is not None and found.n_examples == len(both)
        wanted = [np.mean([of_one[one] for one in both]) for of_one in values]
        assert found.runs.scores([[3, 1]])[0] == pytest.approx(wanted), how
        assert sum(found.n_unmet) > 0


def test_repetitions_are_averaged_within_an_example_first_and_a_drawn_example_counts_for_others() -> None:
    """The first example of plain, a right one, is answered four times more: it counts no more than another."""
    store = two()
    scores = store.read("judgements", "exp-000")
    more = [
        replace(score, judgement_id=f"{score.judgement_id}-{repetition}", repetition=repetition)
        for score in scores
        if score.example_id == "e0"
        for repetition in range(1, 5)
    ]
    store.publish("judgements", "exp-000", [*scores, *more])
    seen = from_json(checks(store)["quality weights"].observed)
    assert seen["scores"] == pytest.approx({"plain": 0.575, "brief": 0.675})
    for owner, kept in (("exp-000", scores), ("exp-001", store.read("judgements", "exp-001"))):
        drawn = [replace(one, sampling_rate=0.5 if int(str(one.example_id)[1:]) < 10 else None) for one in kept]
        store.publish("judgements", owner, drawn)
    seen = from_json(checks(store)["quality weights"].observed)
    contains, short = (24 / 30, 22 / 30), (8 / 30, 28 / 30)
    wanted = {name: 0.75 * contains[at] + 0.25 * short[at] for at, name in enumerate(("plain", "brief"))}
    assert seen["scores"] == pytest.approx(wanted)


def test_what_is_left_out_and_unmet_requirements_are_told() -> None:
    part = {**PLAIN, "short": [FAILED, FAILED, *PLAIN["short"][2:]]}
    message = str(checks(start({"plain": part, "brief": BRIEF}).store)["quality weights"].message)
    assert "2 examples are left out" in message
    gated = str(checks(two(composites=[QUALITY | {"requirements": {"contains": 1}}]))["quality weights"].message)
    assert "an unmet requirement, whatever the weights: 6 of plain, 8 of brief" in gated and "left out" not in gated


@pytest.mark.parametrize(
    ("change", "said"),
    [({"aggregation": "minimum"}, "a minimum has no weights"), ({"function": "statistics:fmean"}, "without weights")],
)
def test_what_has_no_weights_says_so(change: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "function" in change:
        monkeypatch.setattr(
            "evalflows.engine.composites.load", lambda _: lambda parts: sum(parts.values()) / len(parts)
        )
    found = checks(two(composites=[QUALITY | change]))["quality weights"]
    assert found.passed is None and said in str(found.message)
    assert "over all possible weights" not in str(found.message)


def test_the_front_has_declared_directions_and_names_who_beats_whom() -> None:
    worse = {"contains": [1.0] * 10 + [0.0] * 10, "short": [1.0] * 17 + [0.0] * 3}
    lengths = {"plain": 100, "brief": 10, "worse": 20}
    store = start({"plain": PLAIN, "brief": BRIEF, "worse": worse}, lengths, metrics={"answer_length": {}}).store
    found = checks(store)[f"{GROUP} pareto"]
    seen = from_json(found.observed)
    assert seen["higher_is_better"] == {"contains": True, "short": True, "answer_length": False}
    by_name = {one["system"]: one for one in seen["systems"]}
    assert {name: (one["on_front"], one["dominated_by"]) for name, one in by_name.items()} == {
        "worse": (False, "brief"),
        "plain": (True, None),
        "brief": (True, None),
    }
    assert by_name["plain"]["means"] == pytest.approx({"contains": 0.7, "short": 0.2, "answer_length": 100})
    assert "brief dominates worse" in str(found.message)
    assert found.passed is None and found.n_unexpected == 1
    by_length = from_json(checks(store, over=["answer_length", "short"])[f"{GROUP} pareto"].observed)
    assert {one["system"]: one["dominated_by"] for one in by_length["systems"]}["plain"] == "brief"


def test_of_several_composites_one_can_be_chosen_and_what_cannot_be_is_refused() -> None:
    other = {"name": "other", "weights": ["contains", "short"]}
    store = two(composites=[QUALITY, other])
    assert {one for one in checks(store) if "weights" in one} == {"quality weights", "other weights"}
    assert {one for one in checks(store, composites=["other"]) if "weights" in one} == {"other weights"}
    for given, message in (
        ({"composites": ["third"]}, "composite 'third': not in 'demo', wanted one of quality, other"),
        ({"over": ["charm"]}, "over: got 'charm', wanted some of answer_length, contains, other, quality, short"),
        ({"change": 20}, "change: got 20, wanted more than 0 and less than 1"),
    ):
        with pytest.raises(InputError, match=message):
            checks(store, **given)


@pytest.mark.parametrize(
    ("systems", "changes", "message"),
    [
        ({"plain": PLAIN}, {}, "has one target, wanted two or more"),
        ({"plain": PLAIN, "brief": BRIEF}, {"composites": []}, "has no composite and fewer than two metrics"),
    ],
)
def test_a_start_with_nothing_to_look_into_is_refused(systems: Any, changes: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        checks(start(systems, **changes).store)
