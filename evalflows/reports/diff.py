"""What changed between a baseline and candidates, example by example: counts, and pages of the changed examples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from evalflows.reports.change_queries import (
    OF_RUN,
    SHOWN,
    TEXTS,
    WITHOUT_TEXTS,
    Change,
    Sort,
    all_changes,
    counts_query,
    lists_query,
    page_query,
    wanted_query,
)
from evalflows.store.catalog import ask
from evalflows.store.parquet import Store

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedExperiments:
    """Which experiments are compared, by id, and on which examples."""

    baseline_experiment_id: str
    candidate_experiment_ids: Sequence[str]
    chosen: Mapping[str, Sequence[str]] | None = None  # the examples that count, by candidate; None: all shared ones

    @property
    def experiment_ids(self) -> list[str]:
        """The baseline's, then the candidates'."""
        return [self.baseline_experiment_id, *self.candidate_experiment_ids]

    @property
    def query(self) -> str:
        """The query of all changes."""
        return all_changes(self.baseline_experiment_id, self.candidate_experiment_ids)

    @property
    def parameters(self) -> list[object]:
        """The values of $1 to $3 in it."""
        pairs = [(one, example) for one, examples in (self.chosen or {}).items() for example in examples]
        chosen = [[pair[place] for pair in pairs] for place in (0, 1)] if self.chosen is not None else [None, None]
        return [self.experiment_ids, *chosen]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeCounts:
    """How many shared examples changed in which way, by one metric of one candidate."""

    candidate_experiment_id: str
    metric: str
    improved: int
    regressed: int
    same: int
    flipped: int
    changed: int
    missing: int
    not_applicable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleChange:
    """One metric of one example in a candidate and the baseline. Values are means over repetitions.

    Of several repetitions, the texts are those of the candidate's worst run and the baseline's best if it got worse, of
    the candidate's best and the baseline's worst if it got better; of a missing run first.
    """

    candidate_experiment_id: str
    metric: str
    example_id: str
    position: int  # in the candidate's dataset
    change: Change
    gain: float | None  # in the metric's unit; positive is better. None without two numbers
    value: float | None
    baseline_value: float | None
    label: str | None
    baseline_label: str | None
    missing: int  # repetitions that failed or were not attempted
    baseline_missing: int
    inputs: str = "{}"  # JSON, as are references and outputs
    reference_outputs: str | None = None
    outputs: str | None = None
    baseline_outputs: str | None = None
    comment: str | None = None
    baseline_comment: str | None = None
    error: str | None = None
    baseline_error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeList:
    """The examples of a candidate that changed in one way, those that changed most first, each once."""

    candidate_experiment_id: str
    change: Change
    count: int  # of all such examples
    examples: Sequence[ExampleChange]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFilter:
    """Which changes are wanted. Empty: all."""

    metrics: Sequence[str] = ()
    changes: Sequence[Change] = ()
    candidates: Sequence[str] = ()
    once: bool = False  # each example that changed in one way only by the metric that changed most

    @property
    def parameters(self) -> list[object]:
        """The values of $4 to $7 in `wanted_query`."""
        return [list(self.metrics), list(self.changes), list(self.candidates), self.once]


def change_counts(store: Store, compared: ComparedExperiments) -> list[ChangeCounts]:
    """Return the counts of each metric that both sides have, by metric, then in the candidates' order."""
    (rows,) = ask(store, (counts_query(compared.query), compared.parameters))
    return _rows(ChangeCounts, rows)


def changed_examples(
    store: Store,
    compared: ComparedExperiments,
    wanted: ChangeFilter,
    *,
    sort: Sort = "worst",
    limit: int | None = None,
    offset: int = 0,
) -> list[ExampleChange]:
    """Return one page of the changes, with texts. Across metrics, gains are relative to the metric's largest."""
    query = page_query(compared.query, sort)
    rows = _read(store, compared, query, [*compared.parameters, *wanted.parameters, limit, offset])
    return [one for _, one in rows]


def count_changes(store: Store, compared: ComparedExperiments, wanted: ChangeFilter) -> int:
    """Return how many rows all pages of these changes have."""
    query = f"select count(*) from ({wanted_query(compared.query)})"
    (rows,) = ask(store, (query, [*compared.parameters, *wanted.parameters]))
    return int(rows[0][0])


def change_lists(store: Store, compared: ComparedExperiments, wanted: ChangeFilter, *, limit: int) -> list[ChangeList]:
    """Return the changed examples of each candidate by kind, in the order of `wanted.changes`, at most `limit` each."""
    counts: dict[tuple[str, Change], int] = {}
    lists: dict[tuple[str, Change], list[ExampleChange]] = {}
    values = [*compared.parameters, *replace(wanted, once=True).parameters, max(limit, 1)]
    for count, one in _read(store, compared, lists_query(compared.query), values):
        counts[one.candidate_experiment_id, one.change] = count
        lists.setdefault((one.candidate_experiment_id, one.change), []).append(one)
    return [
        ChangeList(candidate_experiment_id=owner, change=change, count=count, examples=lists[owner, change][:limit])
        for (owner, change), count in counts.items()
    ]


def _read(
    store: Store, compared: ComparedExperiments, query: str, values: Sequence[object]
) -> list[tuple[int, ExampleChange]]:
    """Return rows of `(count, change)`, with texts, from one state of the store."""

    def read() -> list[tuple[int, ExampleChange]]:
        (rows,) = ask(store, (query, values))
        page = [ExampleChange(**dict(zip(WITHOUT_TEXTS, row[1:], strict=True))) for row in rows]
        changes = _with_texts(store, compared.baseline_experiment_id, page) if page else []
        return [(row[0], one) for row, one in zip(rows, changes, strict=True)]

    return store.steady(read)


def _with_texts(store: Store, baseline: str, page: Sequence[ExampleChange]) -> list[ExampleChange]:
    """Add the question, and what both sides answered and were told."""
    ids, metrics, examples = (
        [getattr(one, name) for one in page] for name in ("candidate_experiment_id", "metric", "example_id")
    )
    signs = [1.0 if (one.value or 0) > (one.baseline_value or 0) else -1.0 for one in page]  # as it moved
    rows, texts = ask(store, (SHOWN, [ids, metrics, examples, signs, baseline]), (TEXTS, [ids, examples]))
    shown = {(place, is_baseline): dict(zip(OF_RUN, row, strict=True)) for place, is_baseline, *row in rows}
    of_example: dict[tuple[str, str], Any] = {(owner, example): row for owner, example, *row in texts}
    out = []
    for place, one in enumerate(page):
        inputs, reference = of_example[one.candidate_experiment_id, one.example_id]
        baselines = {f"baseline_{name}": text for name, text in shown.get((place, True), {}).items()}
        sides = {**shown.get((place, False), {}), **baselines}
        out.append(replace(one, inputs=inputs, reference_outputs=reference, **sides))
    return out


def _rows(record: type[Row], rows: Sequence[Sequence[Any]]) -> list[Row]:
    names: tuple[str, ...] = record.__slots__  # type: ignore[attr-defined]  # each is a dataclass with slots
    return [record(**dict(zip(names, row, strict=True))) for row in rows]
