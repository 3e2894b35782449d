"""Gate decisions: the conclusion on a candidate, the rules behind it, and differences that limit comparability."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from evalflows.reports.names_apart import names_apart
from evalflows.specs.errors import InputError
from evalflows.store.catalog import ask
from evalflows.store.parquet import Store
from evalflows.store.queries.lookup import check_left_out
from evalflows.store.records import from_json

DECIDING_OUTCOME = {"PASS": "met", "FAIL": "broken", "NOT ENOUGH EVIDENCE": "open"}
"""For each conclusion, the outcome of the rules that lead to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    decision_id: str
    gate: str
    conclusion: str
    summary: str
    candidate_experiment_id: str
    candidate: str
    baseline_experiment_id: str | None
    baseline: str | None
    confidence_level: float
    n_shared: int | None
    interim_analyses: int | None
    calls_saved: int | None
    earlier_decisions: int  # on the candidate, with other rules or another baseline
    decided_at: datetime
    evalflows_version: str
    git_commit: str | None
    reasons: Any  # JSON
    comparability: Any
    policy: Any
    candidate_apart: str  # the names that tell the two apart; the same unless both experiments have one name
    baseline_apart: str | None

    @property
    def rules(self) -> list[dict[str, Any]]:
        """The rules: each a dict of rule, metric, bound, outcome and text."""
        return list(from_json(self.reasons))

    @property
    def notes(self) -> list[str]:
        """Differences between candidate and baseline, and earlier decisions on the candidate, in words."""
        return [*(difference["text"] for difference in from_json(self.comparability) or ()), *self._looks]

    @property
    def _looks(self) -> list[str]:
        """How many decisions with other rules or baselines were made on the candidate before."""
        if not self.earlier_decisions:
            return []
        return [
            f"{_ordinal(self.earlier_decisions + 1)} decision on this experiment: its p-values are not adjusted for "
            f"earlier ones with other rules or another baseline"
        ]

    @property
    def title(self) -> str:
        against = f" against {self.baseline_apart}" if self.baseline_apart else ""
        return f"gate {self.gate}: {self.candidate_apart}{against}"


def _ordinal(number: int) -> str:
    last = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{last}"


def sentence_of(conclusion: str, rules: Sequence[Mapping[str, Any]]) -> str:
    """Summarize a decision by the texts of the rules that led to it."""
    return "; ".join(rule["text"] for rule in rules if rule["outcome"] == DECIDING_OUTCOME[conclusion])


def decisions_of(store: Store, experiments: Sequence[str]) -> list[Decision]:
    """Return the newest decision of each gate on each of the experiments."""
    return _decisions(store, "is_newest and list_contains($1, candidate_experiment_id)", [list(experiments)])


def decisions_named(store: Store, identities: Sequence[str]) -> list[Decision]:
    """Return the decisions with these ids, in their order."""
    decisions = _decisions(store, "list_contains($1, decision_id)", [list(identities)])
    by_id = {decision.decision_id: decision for decision in decisions}
    return [by_id[identity] for identity in identities]


def find_decision(store: Store, reference: str) -> Decision:
    """Find a decision by its id, a unique prefix of it, the gate's name (its newest decision), or the candidate
    experiment's name or id (the newest decision on it). Raise InputError if there is none, or more than one.
    """
    by_id = _decisions(store, "starts_with(decision_id, $1)", [reference])
    if len(by_id) > 1:
        raise InputError(f"decision {reference!r}: got the prefix of {len(by_id)} ids, wanted a longer one")
    named = by_id or _decisions(store, "$1 in (gate, candidate, candidate_experiment_id)", [reference])
    if not named:
        check_left_out(store, f"decision {reference!r}", "decision_id", "experiment_id")
        (known,) = ask(store, ("select distinct gate from gate_decisions order by gate", []))
        wanted = (
            f"wanted an id, or a gate: {', '.join(gate for (gate,) in known)}" if known else "which has no decisions"
        )
        raise InputError(f"decision {reference!r}: not in {store.layout.root}, {wanted}")
    return named[-1]


def _decisions(store: Store, where: str, values: Sequence[object]) -> list[Decision]:
    columns = ", ".join([*Decision.__slots__[:-2], "candidate as candidate_apart", "baseline as baseline_apart"])
    (rows,) = ask(
        store, (f"select {columns} from gate_decisions where {where} order by confirmed_at, decision_id", values)
    )
    decisions = [Decision(**dict(zip(Decision.__slots__, row, strict=True))) for row in rows]
    store.verify((decision.decision_id for decision in decisions), {"decisions"})
    return [_named_apart(store, decision) for decision in decisions]


def _named_apart(store: Store, decision: Decision) -> Decision:
    if decision.baseline_experiment_id is None or decision.baseline is None:
        return decision
    names = {
        decision.candidate_experiment_id: decision.candidate,
        decision.baseline_experiment_id: decision.baseline,
    }
    if len(names) == 1 or decision.candidate != decision.baseline:
        return decision
    candidate, baseline = names_apart(store, names).values()
    return replace(decision, candidate_apart=candidate, baseline_apart=baseline)
