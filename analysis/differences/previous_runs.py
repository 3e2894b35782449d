"""How experiments did against the runs before them."""

from collections.abc import Iterator, Sequence

from evalflows.analysis.differences.metric_reader import MetricReader
from evalflows.analysis.differences.stored_pairs import verdicts_between
from evalflows.reports.previous_run import PreviousRun, previous_run
from evalflows.store.parquet import Store
from evalflows.store.records import ExperimentRow


def previous_runs(store: Store, earlier: Sequence[tuple[str, str]]) -> Iterator[PreviousRun]:
    """Yield how each experiment did against the earlier run beside it, if they share examples; both are ids."""
    reader = MetricReader(store)
    for identity, before in earlier:
        row, previous = (_row(store, one) for one in (identity, before))
        if reader.matched(row, previous).n_shared:
            yield previous_run(row, previous, verdicts_between(reader, previous, [row]))


def _row(store: Store, identity: str) -> ExperimentRow:
    row: ExperimentRow = store.read("experiments", identity)[0]
    return row
