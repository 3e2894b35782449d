"""Planning: what a run would cost, and how many examples show what is wanted. No flow, since nothing is run."""

from collections.abc import Sequence

from specs.experiment import ExperimentSpec
from tasks.plan import Plan, plan_of
from tasks.plan_words import about, count, money, sentences_of
from tasks.power import POWER

__all__ = ["Plan", "about", "count", "money", "plan", "sentences_of"]


def plan(
    spec: ExperimentSpec, effect: float | None = None, *, metrics: Sequence[str] = (), power: float = POWER
) -> Plan:
    """What a run of a spec would cost, and how many examples show a difference; `sentences_of` says it in words.

    Args:
        spec: What would be run.
        effect: The difference that is to be seen, in the unit of each metric; what gates ask for is planned besides.
        metrics: Which metrics; those of the evaluators, the composites and the gates where left out.
        power: How often a difference of that size is to be seen, 0 to 1.

    Nothing is called, frozen or kept, and no key is needed. Raises InputError for what could not run.
    """
    return plan_of(spec, effect, metrics, power)
