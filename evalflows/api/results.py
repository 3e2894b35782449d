"""The result of `evaluate`: an experiment's rows, read from the store."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any

from evalflows.reports.result_sentences import sentences
from evalflows.reports.results import Result, results_of
from evalflows.store.parquet import Store
from evalflows.store.queries.lookup import find_experiments
from evalflows.store.records import ExampleRow, ExperimentRow, OutputRow, ScoreRow
from evalflows.store.snapshots import load_snapshot
from evalflows.store.spilled_lines import SpilledRows

if TYPE_CHECKING:
    import pandas as pd
    from markupsafe import Markup

    from evalflows.flows.api.diff_result import DiffResult
    from evalflows.pages.notebook import Plot


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemOutcome:
    """One run: the example, the output, and its scores."""

    example: ExampleRow
    output: OutputRow
    scores: Sequence[ScoreRow]


class ExperimentResult:
    """An experiment of the store. Iterates over its runs by repetition, in the dataset's order.

    Its rows are read when they are first used. Outputs stay on disk: they may be larger than memory.
    """

    def __init__(self, experiment: str) -> None:
        """Find an experiment, given by id, id prefix or name. Raise InputError if there is none, or more than one."""
        self._store = store = Store()
        rows: Sequence[ExperimentRow] = store.read("experiments", experiment)
        if not rows:
            rows = store.read("experiments", *find_experiments(store, experiment, just_one=True))
        self._row = rows[0]
        self._examples = load_snapshot(store, self._row.snapshot_id)

    @cached_property
    def _runs(self) -> list[str]:
        """The ids of the runs, in order."""
        rows = self._store.rows("outputs", self.experiment_id, texts=False)
        made = {(row.repetition, row.example_id): row.run_id for row in rows}
        keys = product(range(self._row.repetitions), self._examples.ids)
        return [made[key] for key in keys if key in made]

    @cached_property
    def _outputs(self) -> SpilledRows[tuple[int, str], OutputRow]:
        """The outputs by repetition and example."""
        outputs = SpilledRows[tuple[int, str], OutputRow]()
        for output in self._store.rows("outputs", self.experiment_id):
            outputs[output.repetition, output.example_id] = output
        return outputs

    @cached_property
    def _scores(self) -> dict[str, list[ScoreRow]]:
        """The scores by subject: a run, or the experiment."""
        scores: dict[str, list[ScoreRow]] = {}
        for score in self._store.read("scores", self.experiment_id):
            scores.setdefault(score.subject_id, []).append(score)
        return scores

    def __repr__(self) -> str:
        metrics = ", ".join(sorted({score.metric for scores in self._scores.values() for score in scores}))
        return f"ExperimentResult({self.experiment_name!r}, {self.experiment_id}, {len(self)} runs: {metrics})"

    def _repr_html_(self) -> str:
        """The table of metrics with verdicts, for notebooks."""
        from evalflows.pages.notebook import results_table, shown  # late: only notebooks need templates

        def made() -> "Markup":
            results = self._results()
            return results_table(self._store, f"{self!r}, {self._row.state}", results, sentences(results))

        return shown(made)

    def plot(self) -> "Plot":
        """Draw the mean of each metric with its interval; notebooks show it, and `str` gives the SVG."""
        from evalflows.pages.notebook import plot_of_means

        return plot_of_means(f"Means of {self.experiment_name}", self._results())

    def _results(self) -> list[Result]:
        return results_of(self._store, [self.experiment_id])

    @property
    def experiment_id(self) -> str:
        return self._row.experiment_id

    @property
    def experiment_name(self) -> str:
        return self._row.name

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[ItemOutcome]:
        for repetition in range(self._row.repetitions):
            for example in self._examples:
                if output := self._outputs.get((repetition, example.example_id)):
                    yield ItemOutcome(example=example, output=output, scores=self._scores_of(output.run_id))

    def _scores_of(self, subject: str) -> list[ScoreRow]:
        return sorted(self._scores.get(subject, []), key=lambda score: score.metric)

    @property
    def summary(self) -> list[ScoreRow]:
        """The scores of the whole experiment, by summary evaluators."""
        return self._scores_of(self.experiment_id)

    def scores(self, metric: str) -> list[float | str | None]:
        """Return the value or label of each run, in order; None if the run has no such score.

        A summary evaluator's metric has one score, that of the whole experiment. Raise KeyError if nothing has the
        metric.
        """
        by_run = [[s for s in self._scores_of(run) if s.metric == metric and s.turn is None] for run in self._runs]
        if not any(by_run):
            by_run = [[score] for score in self.summary if score.metric == metric]
        if not by_run:
            known = sorted({s.metric for scores in self._scores.values() for s in scores})
            raise KeyError(f"metric {metric!r}: wanted one of {', '.join(known) or 'no metric at all'}")
        return [None if not s else s[0].value if s[0].value is not None else s[0].label for s in by_run]

    def compare(self, baseline: "str | ExperimentResult", *, where: str | None = None) -> "DiffResult":
        """Compare with a baseline: an id, id prefix or name of an experiment, or a result. See `evalflows.diff`."""
        from evalflows.flows.api.diff_result import diff

        return diff(baseline, self, where=where)

    def to_pandas(self) -> "pd.DataFrame":
        """One row per run, by repetition, in the dataset's order; a missing value is NaN or None.

        Columns: example_id, repetition, inputs.*, outputs.*, reference.*; for each metric score.*, and comment.* and
        score_error.* if any run has them; status, error, latency_s and cost_usd of the answer.
        """
        import pandas as pd

        rows = [_flat(item) for item in self]
        columns = sorted(dict.fromkeys(name for row in rows for name in row), key=_place)
        return pd.DataFrame([{name: row.get(name) for name in columns} for row in rows], columns=columns)


def _flat(item: ItemOutcome) -> dict[str, Any]:
    columns: dict[str, Any] = {"example_id": item.example.example_id, "repetition": item.output.repetition}
    for prefix, text in (
        ("inputs", item.example.inputs),
        ("outputs", item.output.outputs),
        ("reference", item.example.reference_outputs),
    ):
        columns |= {f"{prefix}.{name}": value for name, value in json.loads(text or "{}").items()}
    for score in item.scores:
        if score.turn is None:
            columns |= _of_score(score)
    return columns | {name: getattr(item.output, name) for name in _OF_ANSWER}


def _of_score(score: ScoreRow) -> dict[str, Any]:
    said = {"comment": score.comment, "score_error": score.error}
    columns = {f"{prefix}.{score.metric}": text for prefix, text in said.items() if text}
    return {f"score.{score.metric}": score.value if score.value is not None else score.label, **columns}


_PREFIXES = ("example_id", "repetition", "inputs", "outputs", "reference", "score", "comment", "score_error")
_OF_ANSWER = ("status", "error", "latency_s", "cost_usd")


def _place(column: str) -> int:
    """Return where a column stands; columns of one place keep the order in which they appear."""
    if column in _OF_ANSWER:
        return len(_PREFIXES) + _OF_ANSWER.index(column)
    return _PREFIXES.index(column.partition(".")[0])
