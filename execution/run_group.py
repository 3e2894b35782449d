"""What the experiments of a run group share in a process: the budget, the ledger, and the workers of their targets.

Used under the lock of `running_experiment.py`.
"""

from evalflows.execution.workers import Workers
from evalflows.llm.budget import Budget
from evalflows.llm.connections import resolve
from evalflows.llm.divided_budget import DividedBudget, is_divided
from evalflows.llm.ledger import Ledger
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.target import ChatTarget
from evalflows.specs.trace_evaluation import TraceEvaluationSpec
from evalflows.store.parquet import Store
from evalflows.store.queries.progress import spent_by_group
from evalflows.store.records import ExperimentRow

MIN_WORKERS = 16

_budgets: dict[str, Budget] = {}  # by run group
_ledgers: dict[str, Ledger] = {}
_answering: dict[str, Workers] = {}  # by run group: its targets take turns


def forget_group(run_group: str) -> None:
    """Drop what the experiments of a run group share."""
    for shared in (_budgets, _ledgers, _answering):
        shared.pop(run_group, None)


def ledger_of(store: Store, row: ExperimentRow, spec: ExperimentSpec, *, are_made: bool) -> Ledger:
    """Return the ledger of the run group, so that a call of two experiments is paid once; without cache one each.

    If no calls are made, it is empty: reading the index of all calls takes longer than most rules.
    """
    if not spec.use_cache or not are_made:
        return Ledger(store, row.experiment_id, fresh=True, are_made=are_made)
    if row.run_group not in _ledgers:
        _ledgers[row.run_group] = Ledger(store, row.experiment_id)
    return _ledgers[row.run_group]


def budget_of(store: Store, row: ExperimentRow, spec: ExperimentSpec) -> Budget:
    """Return the budget of the run group; one with limits knows what its experiments have already spent.

    In a process that chunks are sent to, it is divided: each chunk has its part.
    """
    if is_divided():
        return DividedBudget(row.experiment_id)
    if row.run_group not in _budgets:
        is_limited = spec.budget_usd is not None or spec.max_calls is not None
        calls, usd, unpriced = spent_by_group(store, row.run_group) if is_limited else (0, 0.0, 0)
        _budgets[row.run_group] = Budget(
            usd=spec.budget_usd, calls=spec.max_calls, spent_usd=usd, spent_calls=calls, unpriced=unpriced
        )
    return _budgets[row.run_group]


def answering_workers(row: ExperimentRow, spec: ExperimentSpec) -> Workers:
    """Return the workers of the run group: as many as keep each connection full, and some per other target."""
    if row.run_group not in _answering:
        chats = {target.connection for target in spec.targets if isinstance(target, ChatTarget)}
        others = sum(not isinstance(target, ChatTarget) for target in spec.targets)
        width = sum(_width(name, spec) for name in chats) + others * MIN_WORKERS
        _answering[row.run_group] = Workers(spec.max_concurrency or max(MIN_WORKERS, width))
    return _answering[row.run_group]


def judging_workers(spec: ExperimentSpec | TraceEvaluationSpec, connections: set[str]) -> Workers:
    """Return as many workers as keep the widest connection full."""
    return Workers(spec.max_concurrency or max([MIN_WORKERS, *(_width(name, spec) for name in connections)]))


def _width(connection: str, spec: ExperimentSpec | TraceEvaluationSpec) -> int:
    """Return a quarter more than a connection's limit: some already wait for a slot while others process answers."""
    return -(-5 * resolve(connection, spec.connections).max_in_flight // 4)
