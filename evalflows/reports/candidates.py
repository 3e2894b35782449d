"""Several candidates of one gate, in one table of rules and candidates, and how they compare with each other."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from evalflows.reports.decisions import Decision, rule_texts
from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.store.described import RuleOutcome
from evalflows.store.store import Store

if TYPE_CHECKING:
    from evalflows.analysis.differences import MetricReader


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleOfCandidate:
    """What a rule of the gate gave for one candidate."""

    rule: str  # `superiority right`, with its bound
    candidate: str
    outcome: str
    figures: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidatesOfGate:
    """The decisions of one gate on several candidates against one baseline."""

    decisions: Sequence[Decision]
    standing: str  # how those that pass, or all if none does, compare with each other
    best: str | None  # the experiment that is better than each other of these in some metric, and worse in none

    @property
    def title(self) -> str:
        first, counts = self.decisions[0], Counter(decision.conclusion for decision in self.decisions)
        against = f" against {first.baseline_apart}" if first.baseline_apart else ""
        said = ", ".join(f"{count} {conclusion}" for conclusion, count in counts.most_common())
        return f"gate {first.gate}{against}, {len(self.decisions)} candidates: {said}"

    @property
    def rules(self) -> list[RuleOfCandidate]:
        """By rule, then by candidate."""
        return [
            RuleOfCandidate(
                rule=_named(rule),
                candidate=decision.candidate_apart,
                outcome=rule.outcome,
                figures=_figures(rule),
                text=rule.text,
            )
            for of_candidates in zip(*(decision.rules for decision in self.decisions), strict=True)
            for decision, rule in zip(self.decisions, of_candidates, strict=True)
        ]

    @property
    def where(self) -> list[str]:
        """In which slices candidates got worse, each line with its candidate."""
        return [f"{decision.candidate_apart}: {line}" for decision in self.decisions for line in decision.where]

    @property
    def limits(self) -> list[str]:
        return limits_of(self.decisions)


def limits_of(decisions: Sequence[Decision]) -> list[str]:
    """Return what limits decisions: what limits several is said once, with the candidates unless it is all."""
    by_text: dict[str, dict[str, None]] = {}
    for decision in decisions:
        for limit in decision.what_limits:
            by_text.setdefault(limit, {})[decision.candidate_apart] = None
    whole = len({decision.candidate_apart for decision in decisions})
    return [text if len(names) == whole else f"{', '.join(names)}: {text}" for text, names in by_text.items()]


def candidates_of_gates(
    store: Store | None, decisions: Sequence[Decision], reader: "MetricReader | None" = None
) -> list[CandidatesOfGate | Decision]:
    """Return the decisions in their order, those of one gate on several candidates against one baseline together.

    `reader` reads the candidates' scores, by default from the store.
    """
    together = grouped(((d.gate, d.baseline_experiment_id, d.baseline_apart), d) for d in decisions)
    found: list[CandidatesOfGate | Decision] = []
    for some in together.values():
        if len({d.candidate_experiment_id for d in some}) < 2 or len({len(d.rules) for d in some}) > 1:
            found += some
        else:
            said, best = _standing(store, some, reader)
            found.append(CandidatesOfGate(decisions=some, standing=said, best=best))
    return found


def best_of(candidates: Sequence[Decision | CandidatesOfGate]) -> list[str]:
    """Return the best candidate of each gate that has one."""
    return [gate.best for gate in candidates if isinstance(gate, CandidatesOfGate) and gate.best is not None]


def passing(decisions: Sequence[Decision]) -> list[str]:
    """Return the experiments on which all gates decided PASS, in order."""
    found: dict[str, bool] = {}
    for decision in decisions:
        found[decision.candidate_experiment_id] = (
            found.get(decision.candidate_experiment_id, True) and decision.conclusion == "PASS"
        )
    return [identity for identity, passes in found.items() if passes]


def _standing(
    store: Store | None, decisions: Sequence[Decision], reader: "MetricReader | None"
) -> tuple[str, str | None]:
    """Return how candidates compare with each other, in a sentence, and the best one if there is one."""
    from evalflows.analysis.diff import standing  # late: scipy is slow to import
    from evalflows.analysis.differences import MetricReader

    names = {decision.candidate_experiment_id: decision.candidate_apart for decision in decisions}
    compared = passing(decisions) or [*names]
    if len(compared) < 2:
        return f"only {names[compared[0]]} passes", compared[0]
    metrics = dict.fromkeys(rule.metric for rule in decisions[0].rules)
    if reader is None:
        assert store is not None
        reader = MetricReader(store)
    found = standing(reader, compared, [*metrics])
    listed, by = _and([names[identity] for identity in compared]), _and(found.metrics)
    if not by:
        return f"{listed} cannot be told apart: they share no metric of the gate that can distinguish them", None
    if found.best is not None:
        others = [other for other in compared if other != found.best]
        beaten = [f"than {names[other]} in {_and(found.better[found.best, other])}" for other in others]
        said = f"{names[found.best]} is significantly better {_and(beaten)}, and in none significantly worse"
        return f"compared by {by}: {said}", found.best
    if not found.better:
        return f"{listed} cannot be told apart by {by}: no significant difference between them", None
    parts = [
        f"{names[first]} is better than {names[second]} in {_and(metrics_of)}"
        for (first, second), metrics_of in found.better.items()
    ]
    return f"none of {listed} is better than all others: {'; '.join(parts)}", None


def _named(rule: RuleOutcome) -> str:
    bound = f" {rule.bound:g}" if rule.bound else ""
    return f"{rule.name} {rule.metric}{bound}"


def _figures(rule: RuleOutcome) -> str:
    """Return the value and its interval; empty for a rule without them."""
    texts = rule_texts(rule, rule.value, rule.low, rule.high) if rule.value is not None else ()
    return " ".join(filter(None, texts))


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
