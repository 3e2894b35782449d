"""Tiers: what one evaluator of a cascade says, and whether that is the end of it."""

from collections.abc import Iterable, Mapping
from typing import Any

from specs.evaluator import TierSpec
from tasks.experiment import ReadyEvaluator
from tasks.judge import Fields

SUMS = ("calls", "calls_cached", "tokens_in", "tokens_out", "latency_s")


def leaves_open(tier: ReadyEvaluator, found: list[Fields]) -> bool:
    """Whether a run goes on to the next tier: what this one says does not apply, or is none of what it decides.

    A tier that failed leaves nothing open: the next one is there for other answers, not in its place.
    """
    first = found[0]
    if first["status"] == "not_applicable":
        return True
    assert isinstance(tier.spec, TierSpec)
    return first["status"] == "scored" and not tier.spec.is_final(first["value"], first["label"])


def decided_by(tier: ReadyEvaluator, found: list[Fields]) -> list[Fields]:
    """The scores with the name of the tier; where it failed, that is in the error.

    The only score bears the cascade's name, also where the tier calls it something else.
    """
    if len(found) == 1:
        found = [found[0] | {"metric": tier.bound.name}]
    name = tier.spec.metric
    failed = {"error": f"{name}: {found[0]['error']}"} if found[0].get("error") else {}
    return [fields | {"decided_by": name if fields["status"] == "scored" else None} | failed for fields in found]


def paid_together(found: list[Fields], before: Mapping[str, Any] | None) -> list[Fields]:
    """The scores, of which the first also bears what the tiers before cost."""
    if before is None:
        return found
    first = found[0]
    sums = {name: _sum([before.get(name), first.get(name)]) for name in SUMS}
    costs = [before["cost_usd"], first["cost_usd"]]  # of which one that is not known makes the sum unknown
    sums["cost_usd"] = None if None in costs else _sum(costs)
    asked = ", ".join(dict.fromkeys(one for one in (before.get("judge_model"), first.get("judge_model")) if one))
    return [first | sums | {"judge_model": asked or None}, *found[1:]]


def _sum(values: Iterable[Any]) -> Any:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
