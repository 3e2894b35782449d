"""Run specs of experiments and their gates as flows, from a program, a notebook or the command line."""

from evalflows.api.calling import RaisedToCaller, call_flow, flow_settings
from evalflows.engine.judging_again import replays
from evalflows.llm.ledger import Calls
from evalflows.prefect_server import begin_early
from evalflows.reports.progress import Watch
from evalflows.specs.experiment import ExperimentSpec
from evalflows.store.queries.looks import look_of
from evalflows.store.store import Store
from evalflows.tasks.snapshot import check_and_freeze, check_gates
from evalflows.tasks.start import refuse_if_running


def run(
    spec: ExperimentSpec, resume: str | None = None, watch: Watch | None = None, calls: Calls | None = None
) -> list[str]:
    """Run a spec as a flow and return the experiments' ids.

    Args:
        spec: The experiment. It is checked and its dataset frozen before Prefect starts, so errors are raised at once.
        resume: Id of a run group to resume.
        watch: Called every second with the progress.
        calls: Counts the model calls that are made.

    Raise InputError if the spec is wrong, and IncompleteError if the run could not be completed.
    """
    with RaisedToCaller(), call_flow(watch, calls):
        refuse_if_running(spec, resume)
        begin_early()
        was_look = resume is not None and look_of(Store(), resume) is not None
        final = was_look or replays(spec)
        checked = check_and_freeze(spec, final=final)
        from evalflows.flows.run_experiment import run_experiment  # late: making a flow takes time, as do the checks

        with checked.handed_on(), flow_settings() as checked.caller.server:
            return run_experiment(checked.prepared.spec, resume, final)


def gate(
    spec: ExperimentSpec, resume: str | None = None, watch: Watch | None = None, calls: Calls | None = None
) -> list[str]:
    """Run a spec as a flow, decide its gates, and return the decisions' ids.

    Arguments and errors are those of `run`. Raise GateFailedError if a gate says FAIL.
    """
    with RaisedToCaller(), call_flow(watch, calls):
        refuse_if_running(spec, resume)
        begin_early()
        checked = check_gates.fn(spec)
        from evalflows.flows.gate_release import gate_release

        with checked.handed_on(), flow_settings() as checked.caller.server:
            return gate_release(checked.prepared.spec, resume)
