"""Resume the runs whose batches have ended: a scheduled look in place of a process that waits."""

from evalflows.engine.open_batches import WaitingRun
from evalflows.flows.light_flow import light_flow
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.errors import IncompleteError, InputError
from evalflows.specs.escaping import print_note
from evalflows.specs.experiment import ExperimentSpec
from evalflows.tasks.batches import is_of_final_examples, runs_to_resume


@light_flow(name="resume_batches")
def resume_batches() -> list[str]:
    """Look at the open batches of the store in this folder, and resume each run whose batches have all ended.

    Return the ids of the runs that were resumed. A run that another process works on is left to it; one that cannot be
    looked at or completed is left to the next start, and the reason is printed.
    """
    resumed = []
    for run in runs_to_resume():
        try:
            _resume(run)
            resumed.append(run.id)
        except (IncompleteError, InputError) as error:
            print_note(f"{run.called} ({run.id}): {error}")
    return resumed


def _resume(run: WaitingRun) -> None:
    if isinstance(run.spec, ExperimentSpec):
        from evalflows.flows.run_experiment import run_experiment  # late, as the others: making a flow takes time

        run_experiment(run.spec, run.id, is_of_final_examples(run))
    elif isinstance(run.spec, ComparisonSpec):
        from evalflows.flows.compare_experiments import compare_experiments

        compare_experiments(run.spec, run.id)
    else:
        from evalflows.flows.evaluate_traces import evaluate_traces

        evaluate_traces(run.spec)
