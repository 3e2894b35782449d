"""Decisions as a person reads them: what a gate said of a candidate, which rules it rests on, and what differed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from specs.errors import InputError
from store.catalog import ask
from store.parquet import Store
from store.records import from_json

EXAMPLE_OF = {"PASS": "met", "FAIL": "broken", "NOT ENOUGH EVIDENCE": "open"}
"""Of each conclusion, the outcome of the rules that it comes from."""


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
    level: float
    n_shared: int | None
    looks: int | None
    calls_saved: int | None
    decided_at: datetime
    evalflows_version: str
    git_commit: str | None
    reasons: Any  # JSON
    comparability: Any
    policy: Any

    @property
    def rules(self) -> list[dict[str, Any]]:
        """Each with its rule, metric, bound, outcome and text."""
        return list(from_json(self.reasons))

    @property
    def notes(self) -> list[str]:
        """What differed between the two sides, in words."""
        return [one["text"] for one in from_json(self.comparability) or ()]

    @property
    def title(self) -> str:
        against = f" against {self.baseline}" if self.baseline else ""
        return f"gate {self.gate}: {self.candidate}{against}"


def sentence_of(conclusion: str, rules: Sequence[Mapping[str, Any]]) -> str:
    """A decision in a sentence: the rules that made it, in words."""
    return "; ".join(rule["text"] for rule in rules if rule["outcome"] == EXAMPLE_OF[conclusion])


def decisions_of(store: Store, experiments: Sequence[str]) -> list[Decision]:
    """The newest decision of each gate on each of some experiments."""
    return _decisions(store, "is_newest and list_contains($1, candidate_experiment_id)", [list(experiments)])


def decisions_named(store: Store, identities: Sequence[str]) -> list[Decision]:
    """The decisions of those ids, in their order."""
    found = {one.decision_id: one for one in _decisions(store, "list_contains($1, decision_id)", [list(identities)])}
    return [found[identity] for identity in identities]


def find_decision(store: Store, reference: str) -> Decision:
    """What a reference means: a decision's id or the beginning of just one, a gate's name (its newest decision), or an
    experiment's name or id (the newest decision on it). Raises InputError if it means none, or more than one.
    """
    by_id = _decisions(store, "starts_with(decision_id, $1)", [reference])
    if len(by_id) > 1:
        raise InputError(f"decision {reference!r}: {len(by_id)} ids begin so, wanted more of it")
    named = by_id or _decisions(store, "$1 in (gate, candidate, candidate_experiment_id)", [reference])
    if not named:
        (known,) = ask(store, ("select distinct gate from gate_decisions order by gate", []))
        wanted = f"wanted an id, or a gate: {', '.join(gate for (gate,) in known)}" if known else "which has none"
        raise InputError(f"decision {reference!r}: not in {store.layout.root}, {wanted}")
    return named[-1]


def _decisions(store: Store, where: str, values: Sequence[object]) -> list[Decision]:
    columns = ", ".join(Decision.__slots__)
    (rows,) = ask(
        store, (f"select {columns} from gate_decisions where {where} order by confirmed_at, decision_id", values)
    )
    return [Decision(**dict(zip(Decision.__slots__, row, strict=True))) for row in rows]
