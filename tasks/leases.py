"""One process at a time works on the experiments of a run group, or on a comparison."""

from contextlib import AbstractContextManager

from evalflows.llm import loop
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.store.leases.lease import Lease, leased, refuse_if_in_use
from evalflows.store.parquet import Store
from evalflows.tasks.start import run_group
from evalflows.tasks.start_comparison import comparison_id


def lease_of_run(spec: ExperimentSpec, resume: str | None) -> AbstractContextManager[Lease]:
    """Hold the lease of a spec's run group during a block, so that nobody else pays for the same answers.

    If another process has it, `resume` raises InputError: somebody resumes what is running. A run waits, since it has
    the same run key or is the same flow run: when the other one has ended, it only does what is left.
    """
    group = resume or run_group(spec)
    return leased(Store(), group, _experiment(spec), wait=resume is None, on_loss=loop.stop)


def lease_of_comparison(spec: ComparisonSpec, resume: str | None) -> AbstractContextManager[Lease]:
    """Hold the lease of a comparison during a block; the same as for the run group of an experiment."""
    identity = resume or comparison_id(spec)
    return leased(Store(), identity, _comparison(spec), wait=resume is None, on_loss=loop.stop)


def refuse_if_running(spec: ExperimentSpec | ComparisonSpec, resume: str | None) -> None:
    """Raise InputError if what shall be resumed is running, before Prefect starts."""
    if resume is not None:
        work = _experiment(spec) if isinstance(spec, ExperimentSpec) else _comparison(spec)
        refuse_if_in_use(Store(), resume, work)


def _experiment(spec: ExperimentSpec) -> str:
    return f"experiment {spec.name!r}"


def _comparison(spec: ComparisonSpec) -> str:
    return f"comparison {spec.title!r}"
