"""What was concluded of experiments: verdicts, and the conclusions of gates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evalflows.store.sql import ask
from evalflows.store.store import Store

VERDICT_FIELDS = {
    "paired_mean": "candidate_mean",
    "paired_baseline_mean": "baseline_mean",
    "difference": "difference",
    "difference_standard_error": "standard_error",
    "difference_low": "ci_low",
    "difference_high": "ci_high",
    "difference_method": "method",
    "p_value": "p_value",
    "p_adjusted": "p_adjusted",
    "n_pairs": "n_pairs",
    "minimum_detectable_effect": "minimum_detectable_effect",
    "margin": "margin",
    "conclusion": "conclusion",
    "reason": "reason",
    "reason_code": "reason_code",
    "warning": "warning",
}
"""The fields of a result that are a verdict's, and their names in the verdict."""

_CONCLUSIONS = """
select candidate_experiment_id, gate, conclusion from gate_decisions
where is_newest and list_contains($1, candidate_experiment_id) order by confirmed_at, decision_id
"""


def conclusions_on(store: Store, experiments: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the newest conclusion of each gate on each of the experiments: by experiment, then by gate."""
    (rows,) = ask(store, (_CONCLUSIONS, [list(experiments)]))
    found: dict[str, dict[str, str]] = {}
    for experiment, gate, conclusion in rows:
        found.setdefault(experiment, {})[gate] = conclusion
    return found


def decided_verdicts(
    store: Store, candidates: Sequence[str], decisions: Sequence[str] | None = None
) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Return the verdicts of gates on whole experiments, by candidate, baseline and metric: the columns that
    VERDICT_FIELDS names.

    Of several decisions, or of these `decisions`, the newest counts.
    """
    (rows,) = ask(store, (_DECIDED, [[*candidates], None if decisions is None else [*decisions]]))
    return {(row[0], row[1], row[2]): dict(zip(VERDICT_FIELDS.values(), row[3:], strict=True)) for row in rows}


_DECIDED = f"""
select candidate_experiment_id, baseline_experiment_id, metric, {", ".join(VERDICT_FIELDS.values())}
from verdicts
where is_one_of(candidate_experiment_id, $1) and decision_id is not null and slice is null
      and ($2 is null or list_contains($2, decision_id))
order by recorded_at
"""
