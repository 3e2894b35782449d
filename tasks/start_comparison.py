"""Start or resume a comparison, possibly with more experiments."""

import json
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from evalflows.execution.identity import NO_TIME, without_live_references
from evalflows.execution.pair_chunks import chunk_size, pairs_of
from evalflows.execution.prepared import prepared_comparisons
from evalflows.execution.running_comparison import experiments_of, forget_comparison
from evalflows.execution.votes import read_votes
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.errors import UNREACHABLE, InputError
from evalflows.specs.votes import VotesSpec
from evalflows.store.erasing.refused import refuse_erased
from evalflows.store.parquet import Store
from evalflows.store.queries.comparisons import open_judgements
from evalflows.store.queries.lookup import newest_comparison
from evalflows.store.queries.shared_examples import shared_examples
from evalflows.store.records import ComparisonSetRow, dependent_id, to_json
from evalflows.store.row_specs import comparison_spec
from evalflows.store.schemas import COMPARISON_TABLES
from evalflows.store.spool import ENDING_S, recover
from evalflows.tasks.provider_limit import check_limits
from evalflows.tasks.start_columns import id_of_start, start_columns

FIXED_COLUMNS = (
    "evaluators",
    "randomize_order",
    "both_orders",
    "order_rule",
    "seed",
    "failed_output_policy",
    "repetitions",
)
"""What a resumed comparison must have in common with its first start."""


@task(cache_policy=NO_CACHE, persist_result=False)
def start_comparison(spec: ComparisonSpec, resume: str | None = None) -> ComparisonSetRow:
    """Start or resume a comparison; a finished one is returned unchanged.

    A comparison is resumed if its id is `resume`, it has the same run key, or this flow run is re-run. It may have more
    experiments than before; then only the new pairs are judged.

    Raise InputError if it was started from another spec, if there is no comparison `resume`, and for a limit that
    Prefect does not have.
    """
    check_limits(spec.connections)
    store, identity = Store(), resume or comparison_id(spec)
    stored = store.read("comparison_sets", identity)
    before: ComparisonSetRow | None = stored[0] if stored else None
    if resume and before is None:
        raise InputError(f"resume: got {resume!r}, wanted the id of a comparison in {store.layout.root}")
    row = _row(store, spec, identity, before)
    if before:
        _check_unchanged(before, row)
    return _open(store, row, before)


def comparison_id(spec: ComparisonSpec) -> str:
    """Return the id of a comparison: the same for a run key, and for a re-run flow run."""
    return id_of_start("cmp") if spec.run_key is None else dependent_id("cmp", NO_TIME, "run_key", spec.run_key)


def _row(store: Store, spec: ComparisonSpec, identity: str, before: ComparisonSetRow | None) -> ComparisonSetRow:
    """Return the row of a running comparison. A resumed one keeps its chunk size and start time."""
    return ComparisonSetRow(
        comparison_id=identity,
        name=spec.name,
        experiments=spec.experiments,
        baseline_experiment_id=spec.baseline,
        evaluators=to_json(prepared_comparisons.of(spec).described),
        randomize_order=spec.randomize_order,
        both_orders=spec.both_orders,
        order_rule=spec.order_rule,
        failed_output_policy=spec.failed_output,
        seed=spec.seed,
        **(_of_experiments(store, spec, before) if spec.votes is None else _of_votes(spec.votes)),
        **start_columns(spec, before, newest_comparison(store, spec.name, spec.run_key)),
    )


def _of_experiments(store: Store, spec: ComparisonSpec, before: ComparisonSetRow | None) -> dict[str, Any]:
    experiments = experiments_of(store, spec.experiments)
    shared, repetitions = shared_examples(store, experiments), min(row.repetitions for row in experiments)
    size = spec.chunk_size or chunk_size(len(shared.examples), repetitions, len(pairs_of(spec)))
    return {
        "snapshot_ids": list(dict.fromkeys(row.snapshot_id for row in experiments)),
        "repetitions": repetitions,
        "chunk_size": before.chunk_size if before else size,
        "n_shared": len(shared.examples),
        "n_left_out": shared.left_out,
    }


def _of_votes(spec: VotesSpec) -> dict[str, Any]:
    votes = read_votes(spec).votes
    n_prompts = len({vote.prompt for vote in votes})
    counts = {"n_shared": n_prompts, "n_left_out": 0, "n_votes": len(votes)}
    return {"snapshot_ids": [], "repetitions": 1, "chunk_size": len(votes), **counts}


def _check_unchanged(before: ComparisonSetRow, row: ComparisonSetRow) -> None:
    """Raise InputError if a resumed comparison differs in more than added experiments."""
    remedy = f"wanted a run_key other than {row.run_key!r}" if row.run_key else "start a new one"
    where = f"comparison {before.name!r} ({before.comparison_id}): started with"
    for name in FIXED_COLUMNS:
        old, new = getattr(before, name), getattr(row, name)
        if old != new and not (name == "evaluators" and without_live_references(old) == without_live_references(new)):
            if name == "evaluators":
                old, new = _labels(old), _labels(new)
            raise InputError(f"{where} {name} {old}, got {new}; {remedy}")
    if _pairs(before) != _pairs(row):
        raise InputError(f"{where} pairs: {_pairs(before)}, got {_pairs(row)}; {remedy}")
    if row.experiments[: len(before.experiments)] != before.experiments:
        old, new = ", ".join(before.experiments), ", ".join(row.experiments)
        raise InputError(f"{where} experiments {old}, got {new} (new ones may only be appended); {remedy}")
    if row.n_shared != before.n_shared:
        raise InputError(
            f"{where} {before.n_shared} shared examples, got {row.n_shared} with the new experiments; {remedy}"
        )


def _pairs(row: ComparisonSetRow) -> str:
    """Return which pairs are compared, independent of added experiments."""
    pairs = comparison_spec(row).pairs
    return pairs if pairs == "all" else f"with {row.baseline_experiment_id} alone"


def _labels(evaluators: str) -> str:
    return ", ".join(f"{evaluator['name']}@{evaluator['version']}" for evaluator in json.loads(evaluators))


def _open(store: Store, row: ComparisonSetRow, before: ComparisonSetRow | None) -> ComparisonSetRow:
    """Open the comparison with the spooled rows of a dead process, and return its row; a finished one stays sealed.

    Raise InputError if examples of the experiments were erased.
    """
    identity = row.comparison_id
    forget_comparison(identity)
    recover(store, identity, ENDING_S)
    same = before is not None and before.spec == row.spec  # otherwise there may be more pairs, or other slices
    is_sealed = all(store.is_sealed(table, identity) for table in ("comparison_sets", "comparisons"))
    if is_sealed and same and not open_judgements(store, identity, UNREACHABLE):
        (finished,) = store.read("comparison_sets", identity)
        if finished.state != "running":  # sealed so after the clock was set back, by a version that went by the clock
            return finished  # type: ignore[no-any-return]
    for snapshot in row.snapshot_ids:
        refuse_erased(store, snapshot)
    store.reopen(identity, tuple(reversed(COMPARISON_TABLES)))
    store.append("comparison_sets", identity, "start", [row])
    return row
