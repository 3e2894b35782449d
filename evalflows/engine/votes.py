"""Recorded votes: read from a file, and as the judgements of a comparison."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Literal, get_args

from evalflows.engine.pair_trials import Side, in_order, winning_side
from evalflows.evaluators.pairwise.recorded_preference import (
    Winner,
    WithoutVerdict,
    order_status_of,
    stated,
    status_without_verdict,
    winner_of,
)
from evalflows.specs.comparison import OTHER_NAMES, VOTE_FIELDS, OrderStatus, VotesSpec
from evalflows.specs.errors import InputError, short
from evalflows.specs.files import located
from evalflows.specs.frozen import dataclass
from evalflows.store.file_formats import read_rows
from evalflows.store.queries.complete_judgements import judgement_id, pair_id
from evalflows.store.records import ComparisonSetRow, ExampleRow, Json, JudgementRow, derived_id, to_json

METRIC = "votes"
"""The metric of votes that name none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One vote on the answers of two systems, as its row says it."""

    prompt: str
    first: str
    second: str
    winner: Winner | None  # None with a status
    scores: tuple[float, float] | None
    weight: float
    order: OrderStatus | None  # None: as for the file
    status: WithoutVerdict | Literal["scored"]
    comment: str | None
    metric: str
    metadata: Json | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Votes:
    """The votes of a file."""

    votes: Sequence[Vote]
    version: str  # hash of the file and of how it is read
    order: OrderStatus

    @property
    def systems(self) -> list[str]:
        """The names of the systems, sorted."""
        return sorted({name for vote in self.votes for name in (vote.first, vote.second)})

    @property
    def metrics(self) -> list[str]:
        return sorted({vote.metric for vote in self.votes})


def read_votes(spec: VotesSpec) -> Votes:
    """Read the votes of a file; it is read again only if it has changed.

    Raise InputError, with the row, for a file that cannot be read, without votes, and for an invalid row.
    """
    stat = located(spec.path).stat() if located(spec.path).exists() else None
    return _read(spec.model_dump_json(), None if stat is None else (stat.st_size, stat.st_mtime_ns))


@lru_cache(maxsize=2)
def _read(text: str, state: tuple[int, int] | None) -> Votes:
    spec, votes = VotesSpec.model_validate_json(text), []
    for number, row in read_rows(spec.path):
        try:
            votes.append(_vote(number, row, spec.columns))
        except ValueError as error:
            raise InputError(f"votes: {spec.path}:{number}: {error}") from error
    if not votes:
        raise InputError(f"votes: {spec.path}: got no votes, wanted at least one")
    how = to_json({"order": spec.order, "columns": spec.columns}).encode()
    version = hashlib.sha256(how + located(spec.path).read_bytes()).hexdigest()[:16]
    order = spec.order or order_status_of((vote.first, vote.second) for vote in votes)
    return Votes(votes=votes, version=version, order=order)


def _vote(number: int, row: Mapping[str, Any], columns: Mapping[str, str]) -> Vote:
    names = {field: columns.get(field) or _column(field, row) for field in VOTE_FIELDS}
    cells = {field: row.get(name) for field, name in names.items() if row.get(name) not in (None, "")}
    for field in ("first", "second"):
        if field not in cells:
            got = ", ".join(map(str, row)) or "nothing"
            raise ValueError(f"got {got}, wanted {names[field]!r}, or its column under votes.columns.{field}")
    first, second = str(cells["first"]), str(cells["second"])
    if first == second:
        raise ValueError(f"got {first!r} as {names['first']} and as {names['second']}, wanted two systems")
    winner, scores = _verdict(cells, first, second, names)
    return Vote(
        prompt=str(cells.get("prompt", f"vote {number}")),
        first=first,
        second=second,
        winner=winner,
        scores=scores,
        weight=_weight(cells.get("weight")),
        order=_order(cells.get("order")),
        status="scored" if winner else status_without_verdict(cells),
        comment=None if cells.get("comment") is None else str(cells["comment"]),
        metric=str(cells.get("metric", METRIC)),
        metadata=to_json({name: value for name, value in row.items() if name not in names.values()}, mend=True),
    )


def _column(field: str, row: Mapping[str, Any]) -> str:
    return next((name for name in (field, *OTHER_NAMES.get(field, ())) if name in row), field)


def _verdict(
    cells: Mapping[str, Any], first: str, second: str, names: Mapping[str, str]
) -> tuple[Winner | None, tuple[float, float] | None]:
    """Return the winner and the scores, which must agree; a winner may also be named by the column of its side."""
    given, scores = cells.get("winner"), cells.get("scores")
    sides: Mapping[str, Winner] = {names["first"]: "first", names["second"]: "second"}
    winner = sides.get(str(given)) or winner_of(given, first, second)
    if scores is None:
        return winner, None
    if isinstance(scores, str):
        with suppress(ValueError):  # text that is no JSON is refused below
            scores = json.loads(scores)
    preference = stated({"winner": winner, "scores": scores})
    return preference.winner, preference.scores


def _weight(given: object) -> float:
    if given is None:
        return 1.0
    try:
        weight = float(str(given))
    except ValueError:
        weight = 0.0
    if not 0 < weight < 1e12 or isinstance(given, bool):
        raise ValueError(f"weight: got {short(given)}, wanted a number above 0")
    return weight


def _order(given: object) -> OrderStatus | None:
    statuses: tuple[OrderStatus, ...] = get_args(OrderStatus)
    status = next((status for status in statuses if status == given), None)
    if given is not None and status is None:
        raise ValueError(f"order: got {short(given)}, wanted {', '.join(statuses)}")
    return status


def judgements_of(votes: Votes, row: ComparisonSetRow) -> Iterator[JudgementRow]:
    """Yield the judgement of each vote. Votes on the same pair and prompt are numbered as repetitions."""
    numbers: Counter[tuple[str, str, str, str]] = Counter()
    for vote in votes.votes:
        left, right = sorted((vote.first, vote.second))
        key = (vote.metric, vote.prompt, left, right)
        yield _judgement(vote, votes, row, numbers[key])
        numbers[key] += 1


def _judgement(vote: Vote, votes: Votes, row: ComparisonSetRow, repetition: int) -> JudgementRow:
    left, right = sorted((vote.first, vote.second))
    first: Side = "left" if vote.first == left else "right"
    left_score, right_score = in_order(first, *(vote.scores or (None, None)))
    runs = [derived_id(row.comparison_id, vote.metric, system, vote.prompt, repetition) for system in (left, right)]
    return JudgementRow(
        judgement_id=judgement_id(row.comparison_id, vote.metric, runs[0], runs[1], first, votes.version),
        subject_kind="pair",
        subject_id=pair_id(runs[0], runs[1], first),
        experiment_id=row.comparison_id,
        metric=vote.metric,
        example_id=vote.prompt,
        repetition=repetition,
        left_experiment_id=left,
        right_experiment_id=right,
        left_run_id=runs[0],
        right_run_id=runs[1],
        shown_first=first,
        order_status=vote.order or votes.order,
        weight=vote.weight,
        winner=winning_side(vote.winner, first),
        left_score=left_score,
        right_score=right_score,
        comment=vote.comment,
        status=vote.status,
        error="recorded without a verdict" if vote.status == "failed" else None,
        error_kind="raised" if vote.status == "failed" else None,
        evaluator=vote.metric,
        evaluator_version=votes.version,
        calls=0,
        calls_cached=0,
        metadata=vote.metadata,
    )


def voted_examples(rows: Sequence[JudgementRow]) -> list[ExampleRow]:
    """Return an example for each prompt of a comparison of votes, with the metadata of its first vote."""
    first = {row.example_id or "": row for row in reversed(rows)}
    return [
        ExampleRow(snapshot_id="", example_id=prompt, position=index, inputs="{}", metadata=row.metadata)
        for index, (prompt, row) in enumerate(sorted(first.items()))
    ]
