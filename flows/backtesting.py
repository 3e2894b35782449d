"""Holding a gate against the past, as a function: what it would have said, and how often it errs."""

from specs.errors import InputError
from specs.experiment import ExperimentSpec
from specs.gate import GateSpec
from store.backtest_report import Backtest
from store.parquet import Store
from tasks.backtest import LIMIT, REPLICATES, SEED, backtest

__all__ = ["Backtest", "backtest_gate"]


def backtest_gate(
    policy: GateSpec | ExperimentSpec,
    name: str | None = None,
    *,
    replicates: int = REPLICATES,
    limit: int = LIMIT,
    seed: int = SEED,
) -> list[Backtest]:
    """What a gate, or each gate of a spec, would have said of all past pairs in the store, and how often it errs.

    `name` picks one gate of a spec, which also says what the metrics are and at which level to decide; of a gate alone,
    each candidate's own spec does. Of the pairs, the newest `limit` are taken; of each, `replicates` are made without a
    difference, and with planted ones; 0 leaves that out. Nothing is called, and nothing is kept. Raises InputError for
    a spec without such a gate, and for numbers that are too small.
    """
    for what, number, least in (("replicates", replicates, 0), ("limit", limit, 1), ("seed", seed, 0)):
        if number < least:
            raise InputError(f"{what}: got {number}, wanted {least} at least")
    spec = policy if isinstance(policy, ExperimentSpec) else None
    gates = [policy] if isinstance(policy, GateSpec) else _gates(policy, name)
    return [backtest(Store(), gate, spec, replicates=replicates, limit=limit, seed=seed) for gate in gates]


def _gates(spec: ExperimentSpec, name: str | None) -> list[GateSpec]:
    if not spec.gates:
        raise InputError(f"experiment {spec.name!r}: got no gates, wanted one at least")
    chosen = [gate for gate in spec.gates if name in (None, gate.name)]
    if not chosen:
        known = ", ".join(gate.name for gate in spec.gates)
        raise InputError(f"gate {name!r}: not in experiment {spec.name!r}, wanted one of {known}")
    return chosen
