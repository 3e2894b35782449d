"""Experiments and a comparison of them, row by row as a run leaves them, for what reads them."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from evalflows.store.queries.complete_judgements import pair_id
from evalflows.store.records import (
    ComparisonSetRow,
    ExampleRow,
    ExperimentRow,
    JudgementRow,
    OutputRow,
    derived_id,
    to_json,
)
from evalflows.store.store import Store

START = datetime(2026, 1, 1, tzinfo=UTC)
SNAPSHOT = "snap-1"
TABLES = ("outputs", "judgements", "comparison_sets", "experiments")

_UNASKED = {"decided_by": "failed_output", "cost_usd": 0.0, "calls": 0}
SAID: dict[str, dict[str, Any]] = {
    **{winner: {"status": "scored", "winner": winner} for winner in ("left", "right", "tie")},
    **{f"{winner} unasked": {"status": "scored", "winner": winner, **_UNASKED} for winner in ("left", "right", "tie")},
    "left_out": {"status": "not_applicable", **_UNASKED},
    "not_applicable": {"status": "not_applicable"},
    "failed": {"status": "failed", "error": "boom", "cost_usd": None},
    "not_attempted": {"status": "not_attempted", "error": "over budget", "cost_usd": 0.0, "calls": 0},
}
"""What may become of a judgement."""


class Compared:
    """A comparison of experiments exp-00, exp-01, … that are called as given. Nothing is kept before `write`."""

    def __init__(
        self,
        store: Store,
        names: Sequence[str] = ("old", "new"),
        examples: Sequence[str] = ("q0",),
        repetitions: int = 1,
        comparison_id: str = "cmp-1",
        **of_set: Any,
    ) -> None:
        self.store, self.comparison_id, self.examples, self.repetitions = store, comparison_id, examples, repetitions
        self.experiments = [_experiment(place, name, len(examples), repetitions) for place, name in enumerate(names)]
        self.inputs: dict[str, Any] = {example: {"question": f"{example}?"} for example in examples}
        self.outputs: dict[str, OutputRow] = {}
        for place in range(len(names)):
            for example in examples:
                for repetition in range(repetitions):
                    self.answer(place, example, f"{names[place]} on {example}", repetition=repetition)
        self.judgements: list[JudgementRow] = []
        self.set_row = self._set_row(of_set)

    def answer(self, place: int, example: str, outputs: Any, *, repetition: int = 0, **fields: Any) -> None:
        """What an experiment answered: a text or a mapping; None if it failed."""
        made: dict[str, Any] = {"status": "failed", "error": "boom"}
        if outputs is not None:
            given = {"output": outputs} if isinstance(outputs, str) else outputs
            made = {"status": "ok", "outputs": to_json(given), "length": len(outputs)}
        run = run_id(place, example, repetition)
        of = {"run_id": run, "experiment_id": f"exp-0{place}", "example_id": example, "repetition": repetition}
        self.outputs[run] = OutputRow(**{**of, **made, **fields})

    def judge(
        self,
        example: str,
        *said: str | None,
        pair: tuple[int, int] = (0, 1),
        repetition: int = 0,
        metric: str = "preference",
        **fields: Any,
    ) -> None:
        """What was said of a pair, by SAID: with the left answer first, then with the right; None is no judgement."""
        runs = [run_id(place, example, repetition) for place in pair]
        version = fields.get("evaluator_version", "v1")
        for shown_first, one in zip(("left", "right"), said, strict=False):
            if one is not None:
                row = {
                    "judgement_id": derived_id(self.comparison_id, metric, *runs, shown_first, version),
                    "subject_kind": "pair",
                    "subject_id": pair_id(*runs, shown_first),
                    "experiment_id": self.comparison_id,
                    "metric": metric,
                    "example_id": example,
                    "repetition": repetition,
                    "left_run_id": runs[0],
                    "right_run_id": runs[1],
                    "left_experiment_id": f"exp-0{pair[0]}",
                    "right_experiment_id": f"exp-0{pair[1]}",
                    "shown_first": shown_first,
                    "comment": f"{one}, {shown_first} first",
                    "evaluator": metric,
                    "evaluator_version": version,
                    "cost_usd": 0.25,
                    "calls": 1,
                }
                self.judgements.append(JudgementRow(**{**row, **SAID[one], **fields}))

    def write(self, *, sealed: bool = True) -> None:
        """Keep all of it: sealed, or open as it is while the comparison runs."""
        rows = [
            ExampleRow(snapshot_id=SNAPSHOT, example_id=example, position=place, inputs=to_json(self.inputs[example]))
            for place, example in enumerate(self.examples)
        ]
        self.store.publish("examples", SNAPSHOT, rows)
        for experiment in self.experiments:
            owner = experiment.experiment_id
            self.store.append("experiments", owner, "p", [experiment])
            made = [output for output in self.outputs.values() if output.experiment_id == owner]
            self.store.append("outputs", owner, "p", made)
        self.store.append("judgements", self.comparison_id, "p", self.judgements)
        self.store.append("comparison_sets", self.comparison_id, "p", [self.set_row])
        for owner in (*(one.experiment_id for one in self.experiments), self.comparison_id) if sealed else ():
            self.store.seal(owner, TABLES)

    def _set_row(self, given: dict[str, Any]) -> ComparisonSetRow:
        of_run: dict[str, Any] = {
            "name": "old and new",
            "snapshot_ids": [SNAPSHOT],
            "evaluators": '[{"name":"preference"}]',
            "spec": "{}",
            "randomize_order": True,
            "both_orders": False,
            "failed_output_policy": "loses",
            "seed": 0,
            "chunk_size": 10,
            "n_shared": len(self.examples),
            "n_left_out": 0,
            "evalflows_version": "0",
            "state": "completed",
            "started_at": START,
        }
        own = {"comparison_id": self.comparison_id, "repetitions": self.repetitions}
        compared = [experiment.experiment_id for experiment in self.experiments]
        return ComparisonSetRow(**{**own, "experiments": compared, **of_run, **given})


def run_id(place: int, example: str, repetition: int = 0) -> str:
    return f"run-{place}-{example}-{repetition}"


def _experiment(place: int, name: str, n_examples: int, repetitions: int) -> ExperimentRow:
    return ExperimentRow(
        experiment_id=f"exp-0{place}",
        run_group="group-1",
        name=name,
        dataset_name="questions",
        snapshot_id=SNAPSHOT,
        n_examples=n_examples,
        repetitions=repetitions,
        chunk_size=10,
        target=f"target of {name}",
        target_kind="python",
        target_version="v1",
        evaluators="[]",
        spec="{}",
        evalflows_version="0",
        state="completed",
        started_at=START,
    )
