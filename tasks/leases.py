"""Leases: one process at a time works on an experiment or a comparison."""

from collections.abc import Iterator
from contextlib import contextmanager

from evalflows.engine.budget_parts import AnySpec
from evalflows.llm import loop
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.store.leases import Lease, hold_lease, refuse_if_in_use
from evalflows.store.store import Store
from evalflows.tasks.start import start_id


@contextmanager
def lease_of(spec: AnySpec, resume: str | None = None) -> Iterator[Lease]:
    """Hold the lease of what a spec starts during a block, so that nobody else pays for the same answers.

    If another process has it, `resume` raises InputError: somebody resumes what is running. A start waits, since it has
    the same run key, is the same flow run, or of the same trace evaluation: when the other one has ended, it only does
    what is left.
    """
    held = resume or start_id(spec)
    with loop.ends_with() as end, hold_lease(Store(), held, _called(spec), wait=resume is None, on_loss=end) as lease:
        yield lease


def refuse_if_running(spec: ExperimentSpec | ComparisonSpec, resume: str | None) -> None:
    """Raise InputError if what shall be resumed is running, before Prefect starts."""
    if resume is not None:
        refuse_if_in_use(Store(), resume, _called(spec))


def _called(spec: AnySpec) -> str:
    if isinstance(spec, ComparisonSpec):
        return f"comparison {spec.title!r}"
    return f"{'experiment' if isinstance(spec, ExperimentSpec) else 'trace evaluation'} {spec.name!r}"
