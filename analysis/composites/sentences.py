"""Sentences on what other weights would change."""

from collections.abc import Sequence

from evalflows.analysis.composites.parts import CompositeRuns
from evalflows.stats.weights.pareto import ParetoFront
from evalflows.stats.weights.weight_space import Leaders, OneAtATime, WeightShares


class RobustnessSentences:
    """Sentences on one composite of a run group."""

    def __init__(self, runs: CompositeRuns) -> None:
        self._runs, self._systems, self._metrics = runs, runs.systems, runs.metrics

    def lead(self, declared: OneAtATime) -> str:
        """Say which system leads at the declared weights."""
        scores = ", ".join(f"{name} {score:.3f}" for name, score in zip(self._systems, declared.scores, strict=True))
        weights = "" if self._runs.composite.aggregation == "minimum" else f" ({self._weights(declared.weights)})"
        return f"{self._lead(declared.leaders)} at the declared weights{weights}: {scores}"

    def changes(self, declared: OneAtATime) -> list[str]:
        """Say which single weights, changed a little, change the winner."""
        if declared.reason:
            return [declared.reason]
        decisive = [change for change in declared.changes if change.changes_winner]
        if not decisive:
            return [f"changing any one weight by {percent(declared.change)} does not change the winner"]
        return [
            f"with {self._metrics[change.part]} at {change.weights[change.part]:.2f} instead of "
            f"{declared.weights[change.part]:.2f}, {self._lead(change.leaders)}"
            for change in decisive
        ]

    def shares(self, leaders: Leaders, weights: WeightShares) -> str | None:
        """Say in which share of all possible weights each system leads, the declared leaders first."""
        if weights.shares is None:
            return None
        order = sorted(range(len(self._systems)), key=lambda system: (system not in leaders, system))
        parts = [
            f"{self._systems[system]} {'still leads' if leaders == (system,) else 'leads'} in "
            f"{percent(weights.shares[system])}"
            for system in order
            if weights.shares[system] > 0 or system in leaders
        ]
        parts += [f"{self._names(tied)} tie in {percent(share)}" for tied, share in weights.ties]
        error = 100 * max(weights.standard_errors or [0.0])
        draws = f"{weights.draws} draws, standard error at most {error:.1f} points"
        return f"over all possible weights, {', '.join(parts)} ({draws})"

    def counted(self) -> list[str]:
        """Say which examples are left out, and which runs have an unmet requirement."""
        runs, sentences = self._runs, []
        if runs.n_left_out:
            name = runs.composite.name
            sentences.append(f"{runs.n_left_out} examples are left out because not every system has {name}")
        unmet = [f"{count} of {name}" for name, count in zip(self._systems, runs.n_unmet, strict=True) if count]
        if unmet:
            sentences.append(f"runs scored 0 by an unmet requirement, whatever the weights: {', '.join(unmet)}")
        return sentences

    def _weights(self, weights: Sequence[float]) -> str:
        return ", ".join(f"{metric} {weight:.2f}" for metric, weight in zip(self._metrics, weights, strict=True))

    def _lead(self, leaders: Leaders) -> str:
        return f"{self._names(leaders)} {'leads' if len(leaders) == 1 else 'tie for the lead'}"

    def _names(self, systems: Leaders) -> str:
        return " and ".join(self._systems[system] for system in systems)


def pareto_sentences(systems: Sequence[str], metrics: Sequence[str], front: ParetoFront) -> list[str]:
    """Say which systems are on the Pareto front, which dominate others, and how stable the front is."""
    on_front = [name for name, is_on_front in zip(systems, front.on_front, strict=True) if is_on_front]
    sentences = [f"on {', '.join(metrics)}, no system dominates {' or '.join(on_front)}"]
    for place, dominator in enumerate(front.dominated_by):
        if dominator is not None:
            better = f"{systems[dominator]} dominates {systems[place]}"
            sentences.append(f"{better}: at least as good on every metric, better on at least one")
    if front.shares is not None:
        shares = ", ".join(f"{name} {percent(share)}" for name, share in zip(systems, front.shares, strict=True))
        sentences.append(f"share of {front.resamples} resamples on the Pareto front: {shares}")
    return sentences


def percent(share: float) -> str:
    """Format a share without decimals; 0 % and 100 % only if exact."""
    if 0 < share < 0.005:
        return "less than 1 %"
    if 0.995 <= share < 1:
        return "more than 99 %"
    return f"{100 * share:.0f} %"
