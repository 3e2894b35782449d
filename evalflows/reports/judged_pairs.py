"""The judged pairs of a comparison, one page at a time."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from evalflows.specs.errors import NotFoundError
from evalflows.store.records import ComparisonSetRow
from evalflows.store.sql import ask
from evalflows.store.store import Store

Kind = Literal["left", "right", "tie", "half", "flipped", "missing", "not_applicable", "left_out"]

Side = Literal["left", "right"]

KINDS: tuple[Kind, ...] = ("left", "right", "tie", "half", "flipped", "missing", "not_applicable", "left_out")
"""Outcomes of a pair: which answer won, or why neither did; see docs/guides/pairwise.md."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairChoice:
    """Which pairs are listed. None does not restrict them."""

    metric: str
    kind: Kind | None = None
    systems: Sequence[str] = ()  # at most two experiment ids that the pair is of
    split: str | None = None
    text: str | None = None  # within the example's id, inputs or reference, an answer, or what the judge said


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedPair:
    """One pair of answers, and the judge's combined outcome. Left and right are as in `pair_outcomes`."""

    metric: str
    example_id: str
    repetition: int
    left_experiment_id: str
    right_experiment_id: str
    left_run_id: str
    right_run_id: str
    kind: Kind
    left_points: float | None
    left_score: float | None
    right_score: float | None
    shown_first: Side | Literal["both"] | None  # None: not known
    weight: float
    decided_by: str | None
    comment: str | None  # of the only order, or of that with the left answer first
    other_comment: str | None
    error: str | None
    agreement: float | None
    judge_model: str | None
    cost_usd: float | None
    split: str | None
    inputs: str | None  # JSON, like the rest
    reference_outputs: str | None
    metadata: str | None
    left_outputs: str | None = None
    right_outputs: str | None = None
    left_error: str | None = None  # why there is no answer
    right_error: str | None = None

    @property
    def comments(self) -> list[tuple[Side | None, str]]:
        """What the judge said, each with the answer that was shown first; None if that is not known."""
        if self.shown_first == "both":
            said: list[tuple[Side | None, str | None]] = [("left", self.comment), ("right", self.other_comment)]
        else:
            said = [(self.shown_first, self.comment)]
        return [(first, comment) for first, comment in said if comment]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairList:
    """One page of the pairs that were chosen, and how many pairs of each kind there are, whatever the chosen kind."""

    counts: Counter[Kind]
    n_chosen: int
    pairs: Sequence[JudgedPair]


def pair_list(store: Store, row: ComparisonSetRow, choice: PairChoice, *, page: int, in_page: int) -> PairList:
    """Return a page of a comparison's pairs, in the dataset's order; `page` counts from 1."""
    chosen, values = _chosen(row, choice)
    counted, listed = ask(
        store,
        (f"{chosen} select kind, count(*) from chosen group by kind", values),
        (
            f"{chosen} select {_COLUMNS} from chosen where ${len(values) + 1}::varchar is null or kind = "
            f"${len(values) + 1} order by position, example_id, repetition, left_experiment_id, right_experiment_id "
            f"limit {in_page} offset {in_page * (page - 1)}",
            [*values, choice.kind],
        ),
    )
    counts: Counter[Kind] = Counter(dict(counted))
    return PairList(
        counts=counts,
        n_chosen=counts.total() if choice.kind is None else counts[choice.kind],
        pairs=_with_answers(store, row, [dict(zip(_FIELDS, pair, strict=True)) for pair in listed]),
    )


def judged_pair(store: Store, row: ComparisonSetRow, metric: str, left_run: str, right_run: str) -> JudgedPair:
    """Return one pair. Raise InputError if the comparison does not have it."""
    chosen, values = _chosen(row, PairChoice(metric=metric))
    of_runs = f"left_run_id = ${len(values) + 1} and right_run_id = ${len(values) + 2}"
    (found,) = ask(
        store, (f"{chosen} select {_COLUMNS} from chosen where {of_runs} limit 1", [*values, left_run, right_run])
    )
    if not found:
        raise NotFoundError(f"pair {left_run} and {right_run}: not in {row.name} by {metric}, wanted one of its pairs")
    (pair,) = _with_answers(store, row, [dict(zip(_FIELDS, found[0], strict=True))])
    return pair


def pair_metrics(store: Store, comparison_id: str) -> list[str]:
    """Return the metrics by which a comparison's pairs were judged."""
    query = "select distinct metric from staging.comparisons where comparison_id = ? order by metric"
    return [metric for (metric,) in store.query(query, [comparison_id])]


def pair_splits(store: Store, row: ComparisonSetRow) -> list[str]:
    """Return the splits of the compared examples."""
    query = "select distinct split from source.examples where snapshot_id = ? and split is not null order by split"
    return [split for snapshot in row.snapshot_ids[:1] for (split,) in store.query(query, [snapshot])]


def _chosen(row: ComparisonSetRow, choice: PairChoice) -> tuple[str, list[object]]:
    """Return the SQL of the chosen pairs, as a CTE, and its values. Only searching reads the answers."""
    values: list[object] = [row.comparison_id, choice.metric, next(iter(row.snapshot_ids), None)]
    conditions = []
    for system in choice.systems:
        values.append(system)
        conditions.append(f"${len(values)} in (p.left_experiment_id, p.right_experiment_id)")
    if choice.split is not None:
        values.append(choice.split)
        conditions.append(f"x.split = ${len(values)}")
    if choice.text is not None:
        values += [choice.text, *row.experiments]
        conditions.append(_with_text(len(values) - len(row.experiments), len(values)))
    where = "".join(f" and {condition}" for condition in conditions)
    return f"with chosen as ({_PAIRS}{where})", values


def _with_text(first: int, last: int) -> str:
    """Return the condition that a pair has a text, value `first`; the values up to `last` are the experiments."""
    owners = ", ".join(f"${number}" for number in range(first + 1, last + 1))
    texts = ("p.example_id", "x.inputs", "x.reference_outputs", "p.comment", "p.other_comment")
    found = " or ".join(f"contains(lower({text}), lower(${first}))" for text in texts)
    answers = (
        f"select run_id from outputs where experiment_id in ({owners}) and contains(lower(outputs), lower(${first}))"
    )
    return f"({found} or p.left_run_id in ({answers}) or p.right_run_id in ({answers}))"


def _with_answers(store: Store, row: ComparisonSetRow, pairs: Sequence[dict[str, object]]) -> list[JudgedPair]:
    """Add the answers, which are read for these pairs only."""
    runs = sorted({str(pair[side]) for pair in pairs for side in ("left_run_id", "right_run_id")})
    owners = sorted({str(pair[side]) for pair in pairs for side in ("left_experiment_id", "right_experiment_id")})
    answers: dict[str, tuple[str | None, str | None]] = {}
    if runs and row.n_votes is None:
        places = [f"${number}" for number in range(1, len(owners) + len(runs) + 1)]
        query = (
            f"select run_id, outputs, coalesce(error, status) from outputs "
            f"where experiment_id in ({', '.join(places[: len(owners)])}) "
            f"and run_id in ({', '.join(places[len(owners) :])})"
        )
        (found,) = ask(store, (query, [*owners, *runs]))
        answers = {run: (outputs, error if outputs is None else None) for run, outputs, error in found}
    nothing = (None, None if row.n_votes is not None else "no such run")
    out = []
    for pair in pairs:
        left, right = (answers.get(str(pair[side]), nothing) for side in ("left_run_id", "right_run_id"))
        of_sides = {"left_outputs": left[0], "right_outputs": right[0], "left_error": left[1], "right_error": right[1]}
        out.append(JudgedPair(**pair, **of_sides))  # type: ignore[arg-type]
    return out


_FIELDS = JudgedPair.__slots__[:24]
_COLUMNS = ", ".join(_FIELDS)

_PAIRS = """
select p.* exclude (error), coalesce(p.outcome, p.status) as kind, x.position, x.split, x.inputs, x.reference_outputs,
       coalesce(x.metadata, p.vote_metadata) as metadata,
       case when p.status = 'missing' then coalesce(p.error, 'no judgement in one of the two orders') end as error
from pair_verdicts p
left join examples x on x.snapshot_id = $3 and x.example_id = p.example_id
where p.comparison_id = $1 and p.metric = $2"""
