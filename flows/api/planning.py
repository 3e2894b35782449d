"""Plan a run: its cost, and the number of examples needed to detect an effect. Runs no flow."""

from collections.abc import Sequence

from evalflows.analysis.differences.detectable_effect import POWER
from evalflows.analysis.planning.plan import Plan, plan_experiment
from evalflows.analysis.planning.sentences import Detail, about, count, money, sentences_of
from evalflows.specs.experiment import ExperimentSpec

__all__ = ["Detail", "Plan", "about", "count", "money", "plan", "sentences_of"]


def plan(
    spec: ExperimentSpec, effect: float | None = None, *, metrics: Sequence[str] = (), power: float = POWER
) -> Plan:
    """Estimate the cost of a run, and how many examples detect a difference; `sentences_of` summarises the plan.

    Args:
        spec: The experiment to plan.
        effect: Difference to detect, in the unit of each metric; the gates' margins are planned for in any case.
        metrics: Metrics to plan for. Default: those of the evaluators, composites and gates.
        power: Probability of detecting a difference of that size, 0 to 1.

    Nothing is called, frozen or stored, and no API key is needed. Raise InputError if the spec could not run.
    """
    return plan_experiment(spec, effect, metrics, power)
