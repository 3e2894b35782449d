"""Stores filled as runs, comparisons, decisions and labels leave them."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

from compared import Compared

from evalflows.store.records import derived_id, to_json
from evalflows.store.schemas import EXPERIMENT_TABLES
from evalflows.store.snapshots import freeze, to_examples
from evalflows.store.store import Store

Make = Callable[..., Any]
START = datetime(2026, 1, 1, tzinfo=UTC)


def freeze_questions(store: Store, name: str, count: int) -> tuple[str, list[str]]:
    """Freeze `count` questions; return the snapshot's id and the ids of its examples."""
    questions = [
        {"id": f"q{i}", "inputs": {"question": i}, "outputs": {"answer": i}, "split": "test"} for i in range(count)
    ]
    examples = to_examples(enumerate(questions, start=1), "rows")
    return freeze(store, examples, name=name, source="rows"), [example.example_id for example in examples]


class Filler:
    """Writes experiments like a run."""

    def __init__(self, store: Store, make: Make) -> None:
        self.store, self.make = store, make

    def experiment(self, identity: str, snapshot: str, n: int, repetitions: int, **fields: Any) -> None:
        planned = {"snapshot_id": snapshot, "n_examples": n, "repetitions": repetitions}
        row = self.make("experiments", experiment_id=identity, **{"name": f"name of {identity}"} | planned | fields)
        self.store.append("experiments", identity, "start", [row])

    def output(self, identity: str, example: str, repetition: int, **fields: Any) -> Any:
        of = {"experiment_id": identity, "example_id": example, "repetition": repetition}
        given = {"outputs": '{"answer":1}', "latency_s": 0.5}
        return self.make("outputs", run_id=run_id(identity, example, repetition), **given | of | fields)

    def score(self, identity: str, example: str, repetition: int, metric: str, **fields: Any) -> Any:
        run, version = run_id(identity, example, repetition), fields.get("evaluator_version", "v1")
        of = {"experiment_id": identity, "run_id": run, "example_id": example, "repetition": repetition}
        given = {"evaluator": metric, "evaluator_version": version, "cost_usd": 0.25, "calls": 1}
        score_id = derived_id(run, None, metric, version)
        return self.make("judgements", judgement_id=score_id, subject_id=run, metric=metric, **given | of | fields)

    def scores(self, identity: str, *rows: Any) -> None:
        self.store.append("judgements", identity, "p", rows)


def run_id(identity: str, example: str, repetition: int) -> str:
    return derived_id(identity, example, repetition)


SPEC = to_json(
    {
        "name": "n",
        "dataset": {"rows": [{"inputs": {"q": "1"}}]},
        "targets": [{"kind": "recorded", "column": "said"}],
        "evaluators": ["exact_match"],
    }
)


def fill_sealed(filler: Filler, identity: str, version: str, snapshot: str, examples: list[str]) -> None:
    """A sealed experiment: runs and judgements of the first example failed, all others succeeded."""
    store, outputs, scores = filler.store, [], []
    for example in examples:
        for repetition in range(2):
            if example == examples[0]:
                failed: dict[str, Any] = {"status": "failed", "error": "boom", "evaluator_version": version}
                nothing = {"outputs": None, "latency_s": None}
                outputs.append(filler.output(identity, example, repetition, status="failed", **nothing))
                scores += [
                    filler.score(identity, example, repetition, metric, **failed) for metric in ("exact", "tone")
                ]
            else:
                scored: dict[str, Any] = {"status": "scored", "evaluator_version": version}
                label = "good" if repetition else "bad"
                outputs.append(filler.output(identity, example, repetition))
                scores.append(filler.score(identity, example, repetition, "exact", value=1.0, **scored))
                scores.append(filler.score(identity, example, repetition, "tone", label=label, **scored))
    store.append("outputs", identity, "p", outputs)
    store.append("judgements", identity, "p", scores)
    store.append("calls", identity, "p", [filler.make("calls", call_id=f"c-{identity}", experiment_id=identity)])
    store.append("limits", identity, "p", [filler.make("limits", limit_id=f"l-{identity}", experiment_id=identity)])
    labelled = filler.make("classified", classified_id=f"x-{identity}", experiment_id=identity, expected="a", got="b")
    store.append("classified", identity, "p", [labelled])
    of = {"spec": SPEC}
    filler.experiment(identity, snapshot, 3, 2, recorded_at=START, **of)
    filler.experiment(identity, snapshot, 3, 2, state="completed", recorded_at=START + timedelta(hours=1), **of)
    store.seal(identity, EXPERIMENT_TABLES)


def fill_unfinished(filler: Filler, identity: str, snapshot: str) -> None:
    """An experiment started twice; one run of four succeeded, at the second of three attempts."""
    for attempt, status in enumerate(("failed", "ok", "failed")):
        if attempt < 2:
            filler.experiment(identity, snapshot, 4, 1)
        filler.store.append("outputs", identity, f"p{attempt}", [filler.output(identity, "q0", 0, status=status)])
        judged = "failed" if status == "failed" else "scored"
        filler.scores(identity, filler.score(identity, "q0", 0, "exact", status=judged))


def fill_decisions(store: Store, make: Make) -> None:
    """Two decisions of a gate with two rules, each with an approved baseline and a search of two slices."""
    rule = {
        "rule": "non_inferiority",
        "bound": 0.1,
        "outcome": "open",
        "text": "who knows",
        "p_below": 0.5,
        "p_adjusted": 1.0,
    }
    sides = {"candidate_experiment_id": "exp-1", "baseline_experiment_id": "exp-2"}
    for number in range(2):
        identity, reasons = f"dec-{number}", to_json([rule | {"metric": metric} for metric in ("exact", "tone")])
        store.publish("decisions", identity, [make("decisions", decision_id=identity, reasons=reasons, **sides)])
        verdict = make("verdicts", verdict_id=f"v-{identity}", decision_id=identity, run_group=identity, **sides)
        store.publish("verdicts", identity, [replace(verdict, metric="exact", comparison_id=None)])
        base = make("baselines", baseline_id=f"base-{number}", name="release", experiment_id="exp-2")
        store.publish("baselines", base.baseline_id, [base])
        slices = [{"metric": "exact", "slice": slice_, "difference": -0.5} for slice_ in ("split=test", "split=train")]
        about = {"subject_kind": "experiment", "subject_id": "exp-1", "name": "slices"}
        check = make("checks", check_id=f"slices-{number}", batch_id=identity, observed=to_json({"slices": slices}))
        store.publish("checks", identity, [replace(check, **about)])


def fill_comparison(store: Store, make: Make) -> None:
    """Two metrics of three experiments in both orders, with win rates and ratings, overall and for a split."""
    compared = Compared(store, ["a", "b", "c"], ["q0", "q1"], repetitions=2, both_orders=True)
    owner, metrics, pairs = compared.comparison_id, ("preference", "tone"), [(0, 1), (0, 2), (1, 2)]
    for metric, example, repetition, pair in product(metrics, compared.examples, range(2), pairs):
        compared.judge(example, "left", "right", pair=pair, repetition=repetition, metric=metric)
    compared.write()
    for i, (metric, slice_) in enumerate(product(metrics, (None, "test"))):
        of = {"comparison_id": owner, "metric": metric, "slice": slice_}
        for j, ((left, right), controlled) in enumerate(product(pairs, (False, True))):
            between = {"candidate_experiment_id": f"exp-0{right}", "baseline_experiment_id": f"exp-0{left}"}
            of_length = {"verdict_id": f"v-{i}-{j}", "run_group": owner, "length_controlled": controlled}
            verdict = make("verdicts", **of_length, **of, **between)
            store.append("verdicts", owner, "p", [verdict])
        for j in range(3):
            rated = {"rating_id": f"r-{i}-{j}", "experiment_id": f"exp-0{j}", "method": "bradley-terry"}
            store.append("ratings", owner, "p", [make("ratings", **of, **rated)])
    for metric, bias in product(metrics, ("flip_share", "self_consistency")):
        judged = {"batch_id": owner, "subject_kind": "judge", "subject_id": metric, "name": bias}
        store.append("checks", owner, "p", [make("checks", check_id=f"{metric}-{bias}", **judged)])
    for metric in metrics:
        observed = to_json({"evaluator_version": "v1", "evaluator": metric})
        of = {"subject_kind": "judge", "subject_id": metric, "name": "people", "passed": True, "observed": observed}
        batch = f"people-{metric}"
        store.publish("checks", batch, [make("checks", check_id=batch, batch_id=batch, **of)])


def fill_labels(store: Store, make: Make) -> None:
    """Labels of two people on a run and on a pair, one of them twice."""
    for i, (labeller, at) in enumerate((("ann", START), ("ben", START), ("ann", START + timedelta(hours=1)))):
        of = {"subject_id": run_id("exp-1", "q1", 0), "experiment_id": "exp-1", "metric": "exact", "value": 1.0}
        pair = {"subject_id": "run-0-q0-0", "other_run_id": "run-1-q0-0", "metric": "preference", "label": "left"}
        for j, fields in enumerate((of, pair)):
            made = {"label_id": f"label-{i}-{j}", "batch_id": f"labels-{i}", "labeller": labeller, "recorded_at": at}
            store.append("labels", f"labels-{i}", "p", [make("labels", subject_kind="run", **made, **fields)])
