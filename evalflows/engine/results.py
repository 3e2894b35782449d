"""The result of one judgement, between the evaluator's return value and the stored row."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from evalflows.evaluators.score import Judgement, Place, Preference
from evalflows.llm.endpoint_errors import MIN_PROVIDER_KEY_CHARS, without_keys
from evalflows.llm.ledger import NO_USAGE, Usage
from evalflows.specs.comparison import OrderStatus
from evalflows.specs.errors import NOT_ATTEMPTED, ErrorKind
from evalflows.store.records import DataType, Json, JudgementRow, OutputRow, ScoreStatus, derived_id, now, to_json


class EvaluationResult(NamedTuple):
    """One metric of one judgement: the score or the reason for its absence, who decided, and the cost.

    A failed result has an error and no value, never a zero. A tuple, so that many become columns at once.
    """

    metric: str
    status: ScoreStatus
    turn: int | None = None
    value: float | None = None
    label: str | None = None
    data_type: DataType | None = None
    config_id: str | None = None
    spread: float | None = None
    comment: str | None = None
    metadata: Json | None = None
    prompt_hash: str | None = None
    repeats: int | None = None
    winner: Place | Literal["tie"] | None = None  # of a pair, by the order shown
    scores: tuple[float, float] | None = None
    shown_first: Place | None = None
    order_status: OrderStatus | None = None  # of a recorded preference
    agreement: float | None = None
    error: str | None = None
    error_kind: ErrorKind | None = None
    error_trace: str | None = None
    decided_by: str | None = None
    judge_model: str | None = None
    attempts: int | None = None  # None: not known yet; set from the recorded calls
    latency_s: float | None = None
    usage: Usage = NO_USAGE

    def with_cost(
        self, judge_model: str | None, attempts: int, latency_s: float | None, usage: Usage
    ) -> "EvaluationResult":
        """Return the result with its last four fields; `_replace` takes ten times as long."""
        return EvaluationResult._make((*self[:-4], judge_model, attempts, latency_s, usage))


_OF_PAIR = ("winner", "scores", "shown_first")  # by the order shown
_STORED = tuple(name for name in EvaluationResult._fields if name not in (*_OF_PAIR, "usage"))
_USAGE = tuple(Usage.__slots__)

Columns = Mapping[str, Sequence[Any]]
"""Columns of equal length by name."""


def result_of_score(judgement: Judgement) -> EvaluationResult:
    """Return the result of a score, or of the error that stands for it."""
    if judgement.error is not None:
        return failed_result(judgement.metric, "raised", _clean(judgement.error) or "no score")._replace(
            turn=judgement.turn
        )
    return EvaluationResult(  # by position: by name takes three times as long
        judgement.metric,
        judgement.status,
        judgement.turn,
        judgement.value,
        judgement.label,
        judgement.data_type,
        judgement.config_id,
        judgement.spread,
        _clean(judgement.comment),
        _metadata(judgement),
        judgement.prompt_hash,
        judgement.repeats,
    )


def result_of_preference(preference: Preference, name: str) -> EvaluationResult:
    """Return the result of a preference, by the order shown. `name` is the metric if the preference has no key."""
    return EvaluationResult(
        metric=preference.key or name,
        status=preference.status,
        winner=preference.winner,
        scores=preference.scores,
        shown_first=preference.shown_first,
        order_status=preference.order_status,
        agreement=preference.agreement,
        comment=_clean(preference.comment),
        metadata=_metadata(preference),
        prompt_hash=preference.prompt_hash,
        repeats=preference.repeats,
    )


def failed_result(
    metric: str, kind: ErrorKind, error: str, attempts: int | None = None, trace: str | None = None
) -> EvaluationResult:
    """Return a result with an error and no value."""
    status: ScoreStatus = "not_attempted" if kind in NOT_ATTEMPTED else "failed"
    return EvaluationResult(
        metric=metric, status=status, error_kind=kind, error=error, error_trace=trace, attempts=attempts
    )


def judgement_columns(
    results: Sequence[EvaluationResult], *, evaluator: str, version: str, declared_version: str | None = None
) -> Columns:
    """Return the columns of judgements by one evaluator, without those of their subjects."""
    columns, count = dict(zip(EvaluationResult._fields, zip(*results, strict=True), strict=True)), len(results)
    usages = columns["usage"]
    return {
        **{name: columns[name] for name in _STORED},
        **{name: [getattr(usage, name) for usage in usages] for name in _USAGE},
        "attempts": [1 if attempts is None else attempts for attempts in columns["attempts"]],
        "evaluator": (evaluator,) * count,
        "evaluator_version": (version,) * count,
        "declared_version": (declared_version,) * count,
        "recorded_at": (now(),) * count,
    }


def one_row(columns: Columns) -> JudgementRow:
    """Return the only row of some columns."""
    return JudgementRow(**{name: value for name, (value,) in columns.items()})


def run_scores(
    outputs: Sequence[OutputRow],
    results: Sequence[EvaluationResult],
    *,
    version: str,
    sampling_rates: Sequence[float | None] | None = None,
    **by: Any,
) -> Columns:
    """Return the columns of judgements of answers by one evaluator, each with the answer that it judged.

    `by` are the other keywords of `judgement_columns`.
    """
    columns, runs = judgement_columns(results, version=version, **by), [output.run_id for output in outputs]
    identities = zip(runs, columns["turn"], columns["metric"], strict=True)
    return {
        **columns,
        "judgement_id": [derived_id(run, turn, metric, version) for run, turn, metric in identities],
        "subject_kind": ("run",) * len(runs),
        "subject_id": runs,
        "experiment_id": [output.experiment_id for output in outputs],
        "run_id": runs,
        "example_id": [output.example_id for output in outputs],
        "repetition": [output.repetition for output in outputs],
        "sampling_rate": sampling_rates or (None,) * len(runs),
    }


def _metadata(returned: Judgement | Preference) -> str | None:
    return None if returned.metadata is None else _clean(to_json(dict(returned.metadata), mend=True))


def _clean(text: str | None) -> str | None:
    """Return text from user code, without API keys that an answer may quote."""
    return None if text is None else without_keys(text, MIN_PROVIDER_KEY_CHARS)
