"""Release gate: run, compare with the approved baseline, decide. If a gate fails, the flow run fails."""

from evalflows.flows.light_flow import light_flow
from evalflows.flows.run_experiment import run_experiment
from evalflows.specs.errors import IncompleteError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.tasks.progress import completed, raise_if_failed, run_name
from evalflows.tasks.snapshot import check_gates, recalibrations
from evalflows.tasks.take_up import restrict_deployed_run
from evalflows.tasks.test_and_decide import latest_decisions


@light_flow(name="gate_release", flow_run_name=run_name)
def gate_release(spec: ExperimentSpec, resume: str | None = None) -> list[str]:
    """Run the experiment, compare each candidate with the baseline, and decide the spec's gates.

    If the dataset has a split `final`, its examples are run, and by default no others. Nothing is run if a gate could
    not decide anyway: no baseline is approved, or the baseline was scored by another judge version. If the gate sets
    `recalibrate`, the new judge first scores a sample of the baseline's answers. If a gate says FAIL, this flow run
    fails with a message that names the metric and the difference. An incomplete experiment is decided on the available
    answers, and this flow run then fails too. Return the decisions' ids.

    Args:
        spec: The experiment to run, with its gates.
        resume: Id of a run group to resume instead of starting a new one.
    """
    restrict_deployed_run(spec)
    run = check_gates(spec)
    spec = run.prepared.spec
    for recalibrate in recalibrations(run):
        run_experiment(recalibrate, final=True)
    lacking = None
    try:
        with run.handed_on():
            experiments = run_experiment(spec, resume, final=True)
    except IncompleteError as error:
        experiments, lacking = list(error.experiments), error
    decisions = latest_decisions(spec, experiments)  # made by run_experiment
    raise_if_failed(decisions, lacking)
    return completed(decisions, decisions)
