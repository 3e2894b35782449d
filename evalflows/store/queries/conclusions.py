"""What was concluded of experiments: verdicts, the conclusions of gates, and approved baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from evalflows.specs.frozen import dataclass
from evalflows.store.records import BaselineRow, VerdictRow
from evalflows.store.sql import ask, ask_records, fields_of
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
    "family": "family",
    "n_in_family": "n_in_family",
}
"""The fields of a result that are a verdict's, and their names in the verdict."""

_CONCLUSIONS = """
select candidate_experiment_id, gate, conclusion from gate_decisions
where is_newest and list_contains($1, candidate_experiment_id) order by confirmed_at, decision_id
"""

_NOT_PASSED = """
select gate, conclusion from gate_decisions
where is_newest and candidate_experiment_id = ? and conclusion <> 'PASS'
      and (conclusion = 'FAIL' or (n_shared > 0 and baseline_experiment_id <> candidate_experiment_id))
order by conclusion, gate
"""


def not_passed(store: Store, experiment: str) -> list[tuple[str, str]]:
    """Return each gate that has not passed an experiment, with its newest conclusion, FAIL first. An open decision
    without a baseline, or without shared examples, does not count: there was nothing to compare with."""
    (rows,) = ask(store, (_NOT_PASSED, [experiment]))
    return [(gate, conclusion) for gate, conclusion in rows]


Door = Literal["terminal", "pipe", "python"]
"""Through which a baseline is approved: the command in a terminal, the command without one, or Python."""

DOOR = "approved_through"
"""The name of the check that keeps the door of an approval."""

_DOORS: Mapping[Door, str] = {"terminal": "in a terminal", "pipe": "by a program's command", "python": "in Python"}


def conclusions_on(store: Store, experiments: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the newest conclusion of each gate on each of the experiments: by experiment, then by gate."""
    return _by_gate(store, _CONCLUSIONS, experiments)


_BEFORE = """
select candidate_experiment_id, gate, min(conclusion) filter (not is_newest) as worst from gate_decisions
where list_contains($1, candidate_experiment_id)
group by candidate_experiment_id, gate
having worst <> 'PASS' and worst < any_value(conclusion) filter (is_newest)
"""
"""FAIL, NOT ENOUGH EVIDENCE and PASS are in the order of the alphabet."""


def worse_before(store: Store, experiments: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the worst earlier conclusion of each gate that has concluded better since, by experiment and gate.

    It had other rules then: the same ones conclude the same of the same evidence.
    """
    return _by_gate(store, _BEFORE, experiments)


def _by_gate(store: Store, query: str, experiments: Sequence[str]) -> dict[str, dict[str, str]]:
    (rows,) = ask(store, (query, [list(experiments)]))
    found: dict[str, dict[str, str]] = {}
    for experiment, gate, conclusion in rows:
        found.setdefault(experiment, {})[gate] = conclusion
    return found


def decisions_on(store: Store, experiments: Sequence[str], conclusion: str | None = None) -> list[str]:
    """Return the ids of the gates' decisions on some experiments, with a conclusion (None: all)."""
    query = """select decision_id from source.decisions
               where list_contains($1, candidate_experiment_id) and ($2::varchar is null or conclusion = $2)"""
    return [decision for (decision,) in ask(store, (query, [list(experiments), conclusion]))[0]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedVerdict(VerdictRow):
    """A verdict, and what its p-value is adjusted with."""

    family: str  # `run`, `gate NAME`, or `diff` for one that is not stored
    n_in_family: int  # p-values


def current_verdicts(store: Store, candidates: Sequence[str]) -> dict[tuple[str, str, str], ComparedVerdict]:
    """Return the verdicts that count on whole experiments, by candidate, baseline and metric: of the gate that decided
    last on the metric, else of the run."""
    rows = ask_records(store, ComparedVerdict, _CURRENT, [[*candidates]])
    return {(row.candidate_experiment_id, row.baseline_experiment_id or "", row.metric): row for row in rows}


_CURRENT = f"""
select {fields_of(ComparedVerdict)} from (select *, null as comparison_id from all_verdicts)
where is_one_of(candidate_experiment_id, $1) and slice is null and is_current
"""


def verdicts_of_decisions(store: Store, candidate: str, decisions: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the verdicts of gates' decisions on a whole experiment, by metric: the fields of VERDICT_FIELDS.

    Of several decisions on a metric, the newest counts.
    """
    (rows,) = ask(store, (_DECIDED, [candidate, [*decisions]]))
    return {metric: dict(zip(VERDICT_FIELDS, row, strict=True)) for metric, *row in rows}


_DECIDED = f"""
select metric, {", ".join(VERDICT_FIELDS.values())} from all_verdicts
where candidate_experiment_id = $1 and list_contains($2, decision_id) and slice is null
order by decided_at, decision_id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """An approval, valid until the next one of the same name."""

    baseline_id: str
    name: str
    experiment_id: str
    experiment: str | None  # None if it is not in the store
    approved_by: str | None
    approved_through: Door | None
    started_by: str | None
    reason: str | None
    recorded_at: datetime
    holds: bool

    @property
    def door(self) -> str | None:
        """How it was approved, in words; None if that was not kept."""
        if self.approved_through is None:
            return None
        return f"{_DOORS[self.approved_through]}{f' ({self.started_by})' if self.started_by else ''}"


def approved(store: Store, name: str) -> BaselineRow | None:
    """Return the latest approval of a name; None if there is none.

    Raise StorageError if any approval is damaged: it may be the latest one.
    """
    for damage in store.verify_table("baselines"):
        raise damage.error
    query = """select baseline_id from source.baselines
               where name = ? order by recorded_at desc, baseline_id desc limit 1"""
    latest = store.query(query, [name])
    if not latest:
        return None
    row: BaselineRow = store.read("baselines", latest[0][0])[0]
    return row


def approvals(store: Store, experiments: Sequence[str] | None = None) -> list[Approval]:
    """Return the approvals of experiments, given by id, or all: by name, newest first."""
    query = f"""select {fields_of(Approval)} from approvals
                where $1::varchar[] is null or list_contains($1, experiment_id)
                order by name, recorded_at desc, baseline_id desc"""
    return ask_records(store, Approval, query, [None if experiments is None else list(experiments)])
