"""Plan a run, backtest a gate, or check how robust a composite is, from a program or a notebook.

Runs no flow before it is asked to.
"""

from collections.abc import Sequence

from evalflows.analysis.backtest import LIMIT, REPLICATES, SEED, Backtest, backtest
from evalflows.analysis.differences import POWER
from evalflows.analysis.plan import Plan, plan_experiment
from evalflows.analysis.robustness import RobustnessReport, robustness_report
from evalflows.specs.errors import InputError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.gate import GateSpec
from evalflows.specs.metrics import WEIGHT_CHANGE
from evalflows.store.store import Store

__all__ = ["backtest_gate", "plan"]


def backtest_gate(
    policy: GateSpec | ExperimentSpec,
    name: str | None = None,
    *,
    replicates: int = REPLICATES,
    limit: int = LIMIT,
    seed: int = SEED,
) -> list[Backtest]:
    """Backtest a gate, or each gate of a spec, on all past pairs of experiments in the store.

    Args:
        policy: A gate, or a spec with gates. A spec also sets the metrics and the confidence level; for a gate alone,
            each candidate's own spec does.
        name: Name of one gate of the spec. Default: every gate.
        replicates: Simulated replicates per pair, without a difference and with injected losses; 0: none.
        limit: Maximum number of pairs, newest first.
        seed: Seed of the replicates.

    Nothing is called or stored. Raise InputError if the spec has no such gate, or a number is too small.
    """
    for parameter, number, smallest in (("replicates", replicates, 0), ("limit", limit, 1), ("seed", seed, 0)):
        if number < smallest:
            raise InputError(f"{parameter}: got {number}, wanted at least {smallest}")
    spec = policy if isinstance(policy, ExperimentSpec) else None
    gates = [policy] if isinstance(policy, GateSpec) else _gates(policy, name)
    return [backtest(Store(), gate, spec, replicates=replicates, limit=limit, seed=seed) for gate in gates]


def _gates(spec: ExperimentSpec, name: str | None) -> list[GateSpec]:
    if not spec.gates:
        raise InputError(f"experiment {spec.name!r}: got no gates, wanted at least one")
    chosen = [gate for gate in spec.gates if name in (None, gate.name)]
    if not chosen:
        known = ", ".join(gate.name for gate in spec.gates)
        raise InputError(f"gate {name!r}: not in experiment {spec.name!r}, wanted one of {known}")
    return chosen


def robustness(
    experiment: str, *, composites: Sequence[str] = (), change: float = WEIGHT_CHANGE, over: Sequence[str] = ()
) -> RobustnessReport:
    """Check whether other weights would change the winner by each composite, and store the result in `checks`.

    Args:
        experiment: A run group, or an experiment in it; all systems of the run group are compared.
        composites: Names of the composites to check. Default: all.
        change: Relative change of each weight in turn, down and up.
        over: Metrics of the Pareto front. Default: the metrics of the composites and all declared metrics.

    Raise InputError if the experiment, a composite or a metric does not exist.
    """
    from evalflows.api.calling import flow_settings  # late: neither plans nor backtests need Prefect
    from evalflows.flows.check_robustness import check_robustness

    with flow_settings():
        group = check_robustness(experiment, list(composites), change, list(over))
    return robustness_report(Store(), group)


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
