"""The results of experiments, read from the store."""

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from getpass import getuser
from itertools import islice, product
from typing import TYPE_CHECKING, Any, overload

from evalflows.dashboard.links import Links, NoLinks
from evalflows.engine.views import example_view
from evalflows.evaluators.views import ExampleView
from evalflows.reports.decisions import decisions_of
from evalflows.reports.experiment_report import experiments_report
from evalflows.reports.grids import grids_on
from evalflows.reports.results import Result, results_of
from evalflows.specs.dashboard_address import dashboard_url
from evalflows.specs.errors import InputError
from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.specs.metric_names import RETURNED_AS
from evalflows.store import records
from evalflows.store.labels import MACHINE, later_labels
from evalflows.store.queries.lookup import find_experiments
from evalflows.store.row_specs import experiment_spec
from evalflows.store.snapshots import load_snapshot
from evalflows.store.spilled import SpilledRows
from evalflows.store.store import Store

if TYPE_CHECKING:
    import pandas as pd
    from markupsafe import Markup

    from evalflows.analysis.grid import Grid
    from evalflows.api.diffs import DiffResult
    from evalflows.dashboard.notebook import Plot

_PREFIXES = (
    *("example_id", "repetition", "inputs", "outputs", "reference"),
    *("metadata", "score", "comment", "score_metadata", "score_error"),
)
_OF_ANSWER = ("status", "error", "latency_s", "cost_usd")


class Scores(tuple[records.JudgementRow, ...]):
    """The scores of a run, by place or by the name of their metric."""

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return super().__getitem__(key)
        if (found := next((score for score in self if score.metric == key), None)) is None:
            raise KeyError(f"{key!r}: wanted {', '.join(score.metric for score in self) or 'no metric: there is none'}")
        return found


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ItemOutcome:
    """One run: its example, output and scores. Of `row` and `output`, the rows of the store, contents are JSON."""

    row: records.ExampleRow
    output: records.OutputRow
    scores: Scores

    @property
    def example(self) -> ExampleView:
        """The example, as evaluators get it: contents are mappings."""
        return example_view(self.row)

    @property
    def inputs(self) -> dict[str, Any]:
        return self.example.inputs

    @property
    def reference_outputs(self) -> dict[str, Any] | None:
        return self.example.reference_outputs

    @property
    def outputs(self) -> dict[str, Any] | None:
        """The answer; None if there is none."""
        return records.from_json(self.output.outputs)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        said = [f"{score.metric}={score.label if score.value is None else score.value}" for score in self.scores]
        return f"ItemOutcome({', '.join([repr(self.row.example_id), self.output.status, *said])})"


def links_of(store: Store) -> Links:
    """Return links to the dashboard that runs here, or that EVALFLOWS_DASHBOARD_URL names; else to nowhere."""
    url = dashboard_url(store.layout.root)
    return NoLinks() if url is None else Links(url)


def page_of_experiment(store: Store, experiment: str) -> str | None:
    """Return the address of an experiment's page, if a dashboard runs here or EVALFLOWS_DASHBOARD_URL names one."""
    return links_of(store).experiment(experiment)


class ExperimentResult:
    """An experiment of the store. Iterates over its runs by repetition, in the dataset's order.

    Its rows are read when they are first used. Outputs stay on disk: they may be larger than memory.
    """

    def __init__(self, experiment: str) -> None:
        """Find an experiment, given by id, id prefix or name. Raise InputError if there is none, or more than one."""
        self._store = store = Store()
        rows: Sequence[records.ExperimentRow] = store.read("experiments", experiment)
        if not rows:
            rows = store.read("experiments", *find_experiments(store, experiment, just_one=True))
        self._row = rows[0]
        self._examples = load_snapshot(store, self._row.snapshot_id)

    @property
    def url(self) -> str | None:
        """The address of its page, if a dashboard runs here or EVALFLOWS_DASHBOARD_URL names one; else None."""
        return page_of_experiment(self._store, self.experiment_id)

    @cached_property
    def _runs(self) -> list[str]:
        """The ids of the runs, in order."""
        rows = self._store.rows("outputs", self.experiment_id, texts=False)
        made = {(row.repetition, row.example_id): row.run_id for row in rows}
        keys = product(range(self._row.repetitions), self._examples.ids)
        return [made[key] for key in keys if key in made]

    @cached_property
    def _outputs(self) -> SpilledRows[tuple[int, str], records.OutputRow]:
        outputs = SpilledRows[tuple[int, str], records.OutputRow]()
        for output in self._store.rows("outputs", self.experiment_id):
            outputs[output.repetition, output.example_id] = output
        return outputs

    @cached_property
    def _scores(self) -> dict[str, list[records.JudgementRow]]:
        """The scores by subject: a run, or the experiment."""
        return grouped((score.subject_id, score) for score in self._store.read("judgements", self.experiment_id))

    def __repr__(self) -> str:
        metrics = ", ".join(sorted({score.metric for scores in self._scores.values() for score in scores}))
        return f"ExperimentResult({self.experiment_name!r}, {self.experiment_id}, {len(self)} runs: {metrics})"

    def _repr_html_(self) -> str:
        from evalflows.dashboard.notebook import results_table, shown  # late: only notebooks need templates

        def made() -> "Markup":
            results = self._results()
            of = (self._store, [self.experiment_id])
            report = experiments_report(*of, results, decisions_of(*of), with_worst=False, with_fields=False)
            return results_table(self._store, f"{self!r}, {self._row.state}", results, report.sentences)

        return shown(made)

    def plot(self) -> "Plot":
        """Draw the mean of each metric with its interval; notebooks show it, and `str` gives the SVG."""
        from evalflows.dashboard.notebook import plot_of_means

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
                    yield ItemOutcome(row=example, output=output, scores=Scores(self._scores_of(output.run_id)))

    @overload
    def __getitem__(self, number: int) -> ItemOutcome: ...
    @overload
    def __getitem__(self, number: slice) -> list[ItemOutcome]: ...
    def __getitem__(self, number: int | slice) -> ItemOutcome | list[ItemOutcome]:
        if isinstance(number, slice):
            return [*self][number]
        index = range(len(self))[number]  # raises IndexError
        return next(islice(self, index, None))

    def label(
        self,
        item: ItemOutcome | int,
        metric: str,
        value: float | bool | str,
        *,
        comment: str | None = None,
        labeller: str | None = None,
        machine: str | None = None,
    ) -> None:
        """Store a label of a run, as `evalflows labels import` does: a number, yes or no, or a category.

        Args:
            item: The run, or its place in the results.
            metric: What is labelled; with the name of a judge's metric, the label validates the judge.
            value: The label.
            comment: Why.
            labeller: Who gives it. Default: the name of the user of this machine.
            machine: The name of the program that gives it, if no person does: it then validates no judge.
        """
        outcome, batch = self[item] if isinstance(item, int) else item, records.new_id("batch")
        number = None if isinstance(value, str) else float(value)
        row = records.LabelRow(
            label_id=records.derived_id(batch, outcome.output.run_id, metric),
            batch_id=batch,
            subject_kind="run",
            subject_id=outcome.output.run_id,
            experiment_id=self.experiment_id,
            example_id=outcome.row.example_id,
            metric=metric,
            value=number,
            label=value if isinstance(value, str) else None,
            data_type="BOOLEAN" if isinstance(value, bool) else "CATEGORICAL" if number is None else "NUMERIC",
            comment=comment,
            labeller=machine or labeller or getuser(),
            source="python" if machine is None else MACHINE,
        )
        self._store.publish("labels", batch, later_labels(self._store, [row]))

    def resume(self) -> "ExperimentResult":
        """Do what an interrupted experiment has left, with the functions of this process, and return its results.

        Raise InputError if its functions are those of another process, and IncompleteError as `evaluate` does.
        """
        from evalflows.api.running import run  # late: loads Prefect

        run(experiment_spec(self._row), resume=self._row.run_group)
        return ExperimentResult(self.experiment_id)

    def _scores_of(self, subject: str) -> list[records.JudgementRow]:
        return sorted(self._scores.get(subject, []), key=lambda score: score.metric)

    @property
    def summary(self) -> list[records.JudgementRow]:
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
        return diff(baseline, self, where=where)

    @property
    def grid(self) -> "Grid | None":
        """The cells of the matrix that it is one of, by the first metric; None if it is of none. See `grids`."""
        return next(iter(self.grids), None)

    @property
    def grids(self) -> "Sequence[Grid]":
        """The same for each metric of evaluators: means, which cell is the best, and the main effects."""
        return grids_on(self._store, find_experiments(self._store, self._row.run_group))

    def to_pandas(self) -> "pd.DataFrame":
        """Return one row per run, by repetition, in the dataset's order; a missing value is NaN or None.

        Columns: example_id, repetition, inputs.*, outputs.*, reference.*, metadata.*; for each metric score.*, and
        comment.*, score_metadata.* (a mapping) and score_error.* if any run has them; status, error, latency_s and
        cost_usd of the answer.
        """
        import pandas as pd

        rows = [_flat_row(item) for item in self]
        columns = sorted(dict.fromkeys(name for row in rows for name in row), key=_place)
        return pd.DataFrame([{name: row.get(name) for name in columns} for row in rows], columns=columns)


def _flat_row(item: ItemOutcome) -> dict[str, Any]:
    columns: dict[str, Any] = {"example_id": item.row.example_id, "repetition": item.output.repetition}
    for prefix, text in (
        ("inputs", item.row.inputs),
        ("outputs", item.output.outputs),
        ("reference", item.row.reference_outputs),
        ("metadata", item.row.metadata),
    ):
        columns |= {f"{prefix}.{name}": value for name, value in json.loads(text or "{}").items()}
    for score in item.scores:
        if score.turn is None:
            columns |= _of_score(score)
    return columns | {name: getattr(item.output, name) for name in _OF_ANSWER}


def _of_score(score: records.JudgementRow) -> dict[str, Any]:
    metadata = {key: value for key, value in (records.from_json(score.metadata) or {}).items() if key != RETURNED_AS}
    said = {"comment": score.comment, "score_metadata": metadata, "score_error": score.error}
    columns = {f"{prefix}.{score.metric}": what for prefix, what in said.items() if what}
    return {f"score.{score.metric}": score.value if score.value is not None else score.label, **columns}


def _place(column: str) -> int:
    """Return where a column stands; columns of one place keep the order in which they appear."""
    if column in _OF_ANSWER:
        return len(_PREFIXES) + _OF_ANSWER.index(column)
    return _PREFIXES.index(column.partition(".")[0])


Compared = str | ExperimentResult


def identity_of(store: Store, experiment: Compared) -> str:
    """Return the id of an experiment given by a reference or a result. Raise InputError unless it means one."""
    if isinstance(experiment, ExperimentResult):
        return experiment.experiment_id
    (identity,) = find_experiments(store, experiment, just_one=True)
    return identity


def experiment_row(store: Store, identity: str) -> records.ExperimentRow:
    rows: Sequence[records.ExperimentRow] = store.read("experiments", identity)
    if not rows:
        raise InputError(f"experiment {identity}: not in {store.layout.root}")
    return rows[0]


def diff(baseline: Compared, *candidates: Compared, where: str | None = None) -> "DiffResult":
    """Compare stored experiments with a baseline, started together or apart. Nothing is run or stored.

    Args:
        baseline: Id, id prefix or name of an experiment (`NAME~1`: the run before the newest), or a result.
        candidates: The same.
        where: A SQL condition: only the examples for which it holds are compared, such as "split = 'hard'".

    Raise InputError if an experiment does not exist or is given twice, if no example is shared, and for a condition
    that is none or holds for no shared example.
    """
    from evalflows.api.diffs import DiffResult  # late: few results are compared, and that loads much

    store = Store()
    return DiffResult(
        store, identity_of(store, baseline), [identity_of(store, candidate) for candidate in candidates], where
    )
