"""Backtest a gate: what it would have decided on past pairs of experiments, and its error rates."""

from evalflows.analysis.backtest.backtest import LIMIT, REPLICATES, SEED, backtest
from evalflows.reports.backtest import Backtest
from evalflows.specs.errors import InputError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.gate import GateSpec
from evalflows.store.parquet import Store

__all__ = ["Backtest", "backtest_gate"]


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
