"""Length-controlled win rates of a comparison, as differences and verdicts."""

from collections.abc import Mapping, Sequence

from evalflows.analysis.differences.verdicts import Verdict
from evalflows.analysis.pairwise.preferences import Preferences
from evalflows.stats import LengthControlled, PairedDifference, length_controlled_rates
from evalflows.store.reasons import Reason, ReasonCode

LENGTH_CONTROLLED = "length-controlled"
"""Part of the id and of the method name of a length-controlled verdict."""


Matchup = tuple[str, str]
"""A candidate and a baseline."""


def rates_at_equal_length(
    preferences: Preferences, matchups: Sequence[Matchup], confidence_level: float
) -> Mapping[Matchup, LengthControlled]:
    """Each candidate's win rate at equal length, from one regression of all pairs that have a verdict and lengths.

    Empty for votes, which have no lengths.
    """
    if preferences.of_votes:
        return {}
    rows = preferences.outcomes
    rows = rows[rows.status.isin(["scored", "missing"]) & rows.points.notna() & rows.longer.notna()]
    names = {*rows.left, *rows.right, *(side for matchup in matchups for side in matchup)}
    entries = {name: entry for entry, name in enumerate(sorted(names))}
    rates = length_controlled_rates(
        rows.left.map(entries),
        rows.right.map(entries),
        rows.points,
        rows.longer,
        list(rows.cluster_id),
        pairs=[(entries[candidate], entries[baseline]) for candidate, baseline in matchups],
        order=rows.shown,
        confidence_level=confidence_level,
    )
    return dict(zip(matchups, rates, strict=True))


def as_difference(estimate: LengthControlled) -> PairedDifference:
    """Turn a win rate and its interval into the difference between the two sides' win rates."""
    low, rate, high = (
        None if share is None else 2 * share - 1 for share in (estimate.low, estimate.rate, estimate.high)
    )
    return PairedDifference(
        candidate_mean=estimate.rate,
        baseline_mean=None if estimate.rate is None else 1 - estimate.rate,
        difference=rate,
        low=low,
        high=high,
        p_value=None,
        confidence_level=estimate.confidence_level,
        method=f"{LENGTH_CONTROLLED}: {estimate.method}",
        n_pairs=estimate.n,
        n_clusters=estimate.n_clusters,
        standard_error=None if estimate.standard_error is None else 2 * estimate.standard_error,
        warning=None,
        reason=estimate.reason,
    )


def length_controlled_verdict(estimate: LengthControlled) -> Verdict:
    """Classify by the interval alone: a length-controlled win rate has no test."""
    if estimate.low is None or estimate.high is None:
        code: ReasonCode = "not_identifiable" if estimate.rate is None else "no_interval"
        return Verdict.undecided(Reason(code, estimate.reason or "no interval"))
    if estimate.low > 0.5 or estimate.high < 0.5:
        return Verdict(conclusion="better" if estimate.low > 0.5 else "worse")
    return Verdict.undecided(Reason("no_significant_difference", f"no significant difference ({estimate.n} pairs)"))
