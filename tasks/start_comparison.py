"""Start or resume a comparison."""

from collections.abc import Iterator, Mapping
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from evalflows.engine.pair_trials import pair_chunk_size, pairs_of
from evalflows.engine.pairs import Context, experiments_of
from evalflows.engine.votes import read_votes
from evalflows.specs.comparison import ComparisonSpec, VotesSpec
from evalflows.store.described import to_described
from evalflows.store.queries.shared_examples import shared_examples
from evalflows.store.records import ComparisonSetRow
from evalflows.store.row_specs import comparison_spec
from evalflows.store.store import Store
from evalflows.tasks.limits import check_limits
from evalflows.tasks.progress import enter_stage
from evalflows.tasks.start import changes_in_words, open_or_resume, rows_to_start

FIXED_COLUMNS = (
    *("evaluators", "randomize_order", "both_orders", "order_rule"),
    *("seed", "failed_output_policy", "repetitions"),
)
"""What a resumed comparison must have in common with its first start."""


@task(cache_policy=NO_CACHE, persist_result=False)
def start_comparison(run: Context, resume: str | None = None) -> ComparisonSetRow:
    """Start or resume a comparison; a finished one is returned unchanged.

    A comparison is resumed if its id is `resume`, it has the same run key, or this flow run is re-run. It may have more
    experiments than before; then only the new pairs are judged.

    Raise InputError if it was started from another spec, if there is no comparison `resume`, and for a limit that
    Prefect does not have.
    """
    if resume:
        enter_stage(run, "resuming")
    check_limits(run.prepared.spec.connections)
    (row,) = rows_to_start(run, resume, _rows, _changes)
    run.reset()
    return open_or_resume(run.store, row)


def _rows(run: Context, identity: str, columns: Mapping[str, Any]) -> list[ComparisonSetRow]:
    store, spec = run.store, run.prepared.spec
    row = ComparisonSetRow(
        comparison_id=identity,
        name=spec.name,
        experiments=spec.experiments,
        baseline_experiment_id=spec.baseline,
        evaluators=to_described(run.prepared.described),
        randomize_order=spec.randomize_order,
        both_orders=spec.both_orders,
        order_rule=spec.order_rule,
        failed_output_policy=spec.failed_output,
        seed=spec.seed,
        **(_of_experiments(store, spec) if spec.votes is None else _of_votes(spec.votes)),
        **columns,
    )
    return [row]


def _of_experiments(store: Store, spec: ComparisonSpec) -> dict[str, Any]:
    experiments = experiments_of(store, spec.experiments)
    shared, repetitions = shared_examples(store, experiments), min(row.repetitions for row in experiments)
    size = spec.chunk_size or pair_chunk_size(len(shared.examples), repetitions, len(pairs_of(spec)))
    return {
        "snapshot_ids": list(dict.fromkeys(row.snapshot_id for row in experiments)),
        "repetitions": repetitions,
        "chunk_size": spec.batch or size,
        "n_shared": len(shared.examples),
        "n_left_out": shared.left_out,
    }


def _of_votes(spec: VotesSpec) -> dict[str, Any]:
    votes = read_votes(spec).votes
    n_prompts = len({vote.prompt for vote in votes})
    counts = {"n_shared": n_prompts, "n_left_out": 0, "n_votes": len(votes)}
    return {"snapshot_ids": [], "repetitions": 1, "chunk_size": len(votes), **counts}


def _changes(before: ComparisonSetRow, row: ComparisonSetRow) -> Iterator[str]:
    """Yield in words how a resumed comparison differs in more than added experiments."""
    yield from changes_in_words(before, row, FIXED_COLUMNS)
    if (was := comparison_spec(before).batch) != (now := comparison_spec(row).batch):
        yield f"then {_batches(was)}, now {_batches(now)}"
    if (old := _pairs(before)) != (new := _pairs(row)):
        yield f"then with pairs: {old}, now with {new}"
    if row.experiments[: len(before.experiments)] != before.experiments:
        old, new = ", ".join(before.experiments), ", ".join(row.experiments)
        yield f"then with experiments {old}, now with {new} (new ones may only be appended)"
    if row.n_shared != before.n_shared:
        yield f"then with {before.n_shared} shared examples, with the new experiments {row.n_shared}"


def _batches(size: int | None) -> str:
    return "not in batches" if size is None else f"in batches of {size}"


def _pairs(row: ComparisonSetRow) -> str:
    """Return which pairs are compared, independent of added experiments."""
    pairs = comparison_spec(row).pairs
    return pairs if pairs == "all" else f"those with {row.baseline_experiment_id} alone"
