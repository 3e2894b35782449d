"""What other weights would change, in words for someone who reads no statistics."""

from collections.abc import Sequence

from stats.nearest_flip import NearestFlip
from stats.pareto import ParetoFront
from stats.weight_space import Leaders, OneAtATime, WeightShares, WinnerStays
from tasks.composite_parts import CompositeRuns

SEEN = 0.005
"""A weight that changes by less is not told of."""


class InWords:
    """Sentences about the composite of one start."""

    def __init__(self, found: CompositeRuns) -> None:
        self._found, self._systems, self._metrics = found, found.systems, found.metrics

    def lead(self, one: OneAtATime) -> str:
        """Who is ahead as declared."""
        scores = ", ".join(f"{name} {score:.3f}" for name, score in zip(self._systems, one.scores, strict=True))
        weights = "" if self._found.composite.how == "minimum" else f" ({self._weights(one.weights)})"
        return f"{self._who(one.leaders)} ahead at the declared weights{weights}: {scores}"

    def changes(self, one: OneAtATime) -> list[str]:
        """What each weight alone changes."""
        if one.reason:
            return [one.reason]
        turned = [change for change in one.changes if change.changes_winner]
        if not turned:
            return [f"no weight that is {percent(one.change)} higher or lower changes that"]
        return [
            f"with {self._metrics[change.part]} at {change.weights[change.part]:.2f} instead of "
            f"{one.weights[change.part]:.2f}, {self._who(change.leaders)} ahead"
            for change in turned
        ]

    def shares(self, leaders: Leaders, found: WeightShares) -> str | None:
        """Under how many of all weights who wins, the winner as declared first."""
        if found.shares is None:
            return None
        order = sorted(range(len(self._systems)), key=lambda system: (system not in leaders, system))
        parts = [
            f"{self._systems[system]} {'stays ' if leaders == (system,) else 'is '}ahead in "
            f"{percent(found.shares[system])}"
            for system in order
            if found.shares[system] > 0 or system in leaders
        ]
        parts += [f"{self._who(who, '')} level in {percent(share)}" for who, share in found.level]
        error = max(found.standard_errors or [0.0])
        about = f" (by {found.draws} draws, with a standard error of {100 * error:.1f} points at most)" if error else ""
        return f"of all weights there are, {', '.join(parts)}{about}"

    def flip(self, given: Sequence[float], found: NearestFlip) -> str | None:
        """The nearest weights at which another catches up."""
        if found.winner is None or found.weights is None or found.rival is None:
            return None if found.method == "none" else f"no other is ever ahead: {found.reason}"
        name, rival = self._systems[found.winner], self._systems[found.rival]
        away = [
            f"{metric} weighed {weight:.2f} instead of {before:.2f}"
            for metric, weight, before in zip(self._metrics, found.weights, given, strict=True)
            if abs(weight - before) >= SEEN
        ]
        if len(self._metrics) == 2:  # the other is the rest
            away = away[:1]
        if not away:
            return f"{name} falls behind {rival} with the least change of the weights"
        if found.overtakes:
            return f"{name} would fall behind {rival} if {' and '.join(away)}"
        return f"no other is ever ahead of {name}; {rival} would be level with it if {' and '.join(away)}"

    def stays(self, found: WinnerStays) -> str:
        """How sure the lead is of these examples."""
        if found.stays is None:
            return f"how sure this lead is of the examples is not known: {found.reason}"
        return f"with the examples drawn anew {found.resamples} times, {self._who(found.leaders)} ahead in " + percent(
            found.stays
        )

    def counted(self) -> list[str]:
        """What was left out, and what gates closed."""
        found, said = self._found, []
        if found.n_left_out:
            name = found.composite.name
            said.append(f"{found.n_left_out} examples are left out, as not every system has {name} there")
        closed = [f"{count} of {name}" for name, count in zip(self._systems, found.n_closed, strict=True) if count]
        if closed:
            said.append(f"runs that are 0 whatever the weights, as a gate is closed: {', '.join(closed)}")
        return said

    def _weights(self, weights: Sequence[float]) -> str:
        return ", ".join(f"{metric} {weight:.2f}" for metric, weight in zip(self._metrics, weights, strict=True))

    def _who(self, leaders: Leaders, verb: str = "is") -> str:
        names = [self._systems[one] for one in leaders]
        if len(names) == 1:
            return f"{names[0]} {verb}"
        return f"{' and '.join(names)} are" + (" level" if verb else "")


def front_in_words(systems: Sequence[str], metrics: Sequence[str], found: ParetoFront) -> list[str]:
    """Who is on the front, how surely, and who beats the others."""
    on_front = [name for name, on in zip(systems, found.on_front, strict=True) if on]
    said = [f"by {', '.join(metrics)} nobody beats {' or '.join(on_front)} in everything"]
    for place, dominator in enumerate(found.dominated_by):
        if dominator is not None:
            said.append(f"{systems[dominator]} is at least as good as {systems[place]} in all, and better in some")
    if found.shares is not None:
        shares = ", ".join(f"{name} {percent(share)}" for name, share in zip(systems, found.shares, strict=True))
        said.append(f"with the examples drawn anew {found.resamples} times, on the front: {shares}")
    return said


def percent(share: float) -> str:
    """A share without decimals, and none and all only where they are."""
    if 0 < share < 0.005:
        return "less than 1 %"
    if 0.995 <= share < 1:
        return "more than 99 %"
    return f"{100 * share:.0f} %"
