"""A release gate: run, compare with what is approved, decide. A gate that fails fails the flow run."""

from prefect import flow

from flows.run_experiment import run_experiment
from specs.errors import IncompleteError
from specs.experiment import ExperimentSpec
from tasks.announce import announce, raise_if_failed
from tasks.decide import decide
from tasks.gate import bridges, check_gates, experiment_rows


@flow(name="gate_release", flow_run_name="{spec.name}")
def gate_release(spec: ExperimentSpec, resume: str | None = None) -> list[str]:
    """Run the experiment, compare each candidate with the baseline, and decide by the spec's gates.

    Nothing is paid where a gate could not decide anyway: where no baseline is approved, or others judged it. Where a
    gate says how to bridge that, the newer judge judges a sample of the baseline's answers first. FAIL fails this run,
    with a message that says which metric, and by how much. Returns the decisions' ids. What is incomplete is decided on
    too, by what is there, and fails this run then.

    Args:
        spec: What to run, with its gates.
        resume: A run group to go on with, instead of starting anew.
    """
    spec = check_gates(spec)
    for bridge in bridges(spec):
        run_experiment(bridge)
    lacking = None
    try:
        experiments = run_experiment(spec, resume)
    except IncompleteError as error:
        experiments, lacking = list(error.experiments), error
    decisions = decide(spec, experiment_rows(experiments))
    announce(decisions)
    raise_if_failed(decisions, lacking)
    return decisions
