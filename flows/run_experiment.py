"""Run an experiment: freeze the dataset, answer it with every target, evaluate every answer, test differences."""

from itertools import chain
from typing import Any

from prefect.futures import PrefectFuture
from prefect.task_runners import ThreadPoolTaskRunner

from evalflows.engine.chunks import CHUNKS_AT_ONCE, rounds_of
from evalflows.engine.order import waves_of
from evalflows.flows.light_flow import light_flow
from evalflows.specs.experiment import ExperimentSpec
from evalflows.tasks.announce import announce
from evalflows.tasks.budget_parts import chunks_to_repeat, items_of, with_budget_parts
from evalflows.tasks.controls import run_controls
from evalflows.tasks.engines import chunk_task, chunks_on
from evalflows.tasks.execute import execute_rounds
from evalflows.tasks.finish import calls_end_with_the_flow, finish, raise_failures
from evalflows.tasks.flow_runs import completed, fails_with_gate, raise_if_failed, run_name
from evalflows.tasks.judge import judge
from evalflows.tasks.leases import lease_of
from evalflows.tasks.progress import planned_of, wait_with_progress
from evalflows.tasks.score import combine_scores
from evalflows.tasks.snapshot import freeze_dataset, validate_snapshot
from evalflows.tasks.start_experiments import start_experiments
from evalflows.tasks.taken_up import restrict_deployed_run
from evalflows.tasks.test_and_decide import check_results, compute_differences, decide, publish_results, why_gates_stop

RUNNER: ThreadPoolTaskRunner[Any] = ThreadPoolTaskRunner(max_workers=4 * CHUNKS_AT_ONCE)


@light_flow(name="run_experiment", flow_run_name=run_name, task_runner=RUNNER)
def run_experiment(spec: ExperimentSpec, resume: str | None = None, final: bool = False) -> list[str]:
    """Freeze and check the dataset, run the targets, evaluate every answer, combine the scores, test the differences
    from the baseline, and decide the spec's gates.

    If the spec has `compare`, the answers are then compared in pairs. A run of a deployment fails if a gate says FAIL,
    unless the spec has `gate_fails_run: false`. Return the experiments' ids.

    Args:
        spec: The experiment to run.
        resume: Id of a run group to resume instead of starting a new one.
        final: Whether the examples of the split `final` may be run, as a release gate does. Each run is counted.
    """
    restrict_deployed_run(spec)
    run = freeze_dataset(spec, final)
    spec = run.prepared.spec
    validate_snapshot(run)
    with lease_of(spec, resume) as lease:
        experiments = start_experiments(run, resume)
        execute = chunk_task(execute_rounds, spec)
        evaluate = chunk_task(judge, spec)
        with calls_end_with_the_flow(run):
            steps: list[PrefectFuture[Any]] = [run_controls.submit(run, experiments)]
            waves, stopped = list(waves_of(rounds_of(experiments), spec.batch)), None
            with chunks_on(spec.task_runner, after=steps):
                for number, wave in enumerate(waves):
                    for rounds in with_budget_parts(run, experiments, wave, items_of(chain(*waves[number:]))):
                        answered = execute.submit(run, rounds)
                        steps.append(answered)
                        for chunk in rounds.chunks:
                            steps.append(evaluate.submit(run, chunk, return_state=False, wait_for=[answered]))
                    wait_with_progress(run, steps, planned_of(experiments))
                    for rounds in chunks_to_repeat(run, experiments, wave):
                        for chunk in execute(run, rounds).chunks:
                            evaluate(run, chunk)  # type: ignore[unused-coroutine]  # it returns Any
                    if spec.batch is not None and resume is None and (stopped := why_gates_stop(run, experiments)):
                        break
            combine_scores(run, experiments)
        lease.check()
        lacking = finish(run, experiments, stopped)
        if spec.check_results:
            check_results(run, experiments)
        compute_differences(run, experiments)
        decisions = decide(run, experiments) if spec.gates and not spec.is_trial else []
        publish_results(run, experiments)
        if decisions:
            announce(decisions)
        raise_failures(steps, lacking, experiments)
        if spec.compare is not None and stopped is None:
            from evalflows.flows.compare_experiments import compare_experiments  # late: making a flow takes time
            from evalflows.tasks.compare import comparison_of

            compare_experiments(comparison_of(spec, experiments))
        if fails_with_gate(spec):
            raise_if_failed(decisions)
        return completed([experiment.experiment_id for experiment in experiments], decisions)
