"""From a difference with its interval to a conclusion."""

from stats import PairedDifference
from store.records import Conclusion


def conclude(
    found: PairedDifference, worst: tuple[float, float] | None, lost: int, *, higher_is_better: bool = True
) -> tuple[Conclusion, str | None]:
    """Better or worse where the interval and the test agree, and nothing that is missing could turn it; else why not.

    `worst` is the difference had the `lost` gone all one way or all the other; None where nothing bounds it.
    """
    if found.low is None or found.high is None or found.p_value is None:
        return "not_enough_evidence", found.reason
    if found.low <= 0 <= found.high:
        return "not_enough_evidence", f"the difference may be none ({found.n_pairs} pairs)"
    if found.p_value > 1 - found.level:
        doubt = f"the interval excludes none, but the test does not agree (p {found.p_value:.3f})"
        return "not_enough_evidence", doubt
    if lost and worst is None:
        return "not_enough_evidence", f"{lost} missing, and the metric declares no range that would bound them"
    if lost and worst is not None and worst[0] <= 0 <= worst[1]:
        return "not_enough_evidence", f"{lost} missing could turn it ({worst[0]:+.3g} to {worst[1]:+.3g})"
    return ("better" if (found.low > 0) == higher_is_better else "worse"), None
