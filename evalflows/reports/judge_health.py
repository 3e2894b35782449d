"""Judges at one look: which can be relied on."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from evalflows.store.sql import ask_records, fields_of
from evalflows.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeHealth:
    """One version of a judge with one model, over all that it judged; see the mart `judge_health`."""

    evaluator: str
    evaluator_version: str
    judge_model: str
    metrics: Sequence[str]
    kind: Literal["run", "pair"]
    n_experiments: int
    judged: int
    failed: int
    not_attempted: int
    failure_share: float | None
    controls_passed: bool | None
    controls_reason: str | None
    biases_found: int | None
    biases: Sequence[str] | None
    biases_reason: str | None
    mean_spread: float | None
    repeat_agreement: float | None
    n_repeated: int
    calls: int | None
    cost_usd: float | None
    unpriced: int
    latency_mean_s: float | None
    last_judged_at: datetime

    @property
    def cost_per_judgement(self) -> float | None:
        """In USD; None if a price is not known, or if nothing was judged."""
        made = self.judged + self.failed
        return self.cost_usd / made if self.cost_usd is not None and made else None


def judges_health(store: Store, evaluator: str | None = None) -> list[JudgeHealth]:
    """Return all versions of a judge, or of all judges, the last used first."""
    query = (
        f"select {fields_of(JudgeHealth)} from judge_health where $1::varchar is null or evaluator = $1 "
        "order by last_judged_at desc, evaluator, evaluator_version, judge_model"
    )
    return ask_records(store, JudgeHealth, query, [evaluator])
