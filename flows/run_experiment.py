"""Run an experiment: freeze the dataset, answer it with every target, evaluate every answer, test differences."""

from collections.abc import Sequence
from typing import Any

from prefect.task_runners import ThreadPoolTaskRunner

from evalflows.engine.chunks import CHUNKS_AT_ONCE, rounds_of
from evalflows.engine.judging_again import GivenJudges, experiments_again
from evalflows.engine.order import waves_of
from evalflows.flows.light_flow import light_flow
from evalflows.specs.experiment import ExperimentSpec
from evalflows.tasks.announce import announce
from evalflows.tasks.controls import run_controls
from evalflows.tasks.finish import calls_end_with_the_flow, finish, raise_failures
from evalflows.tasks.progress import completed, fails_with_gate, planned_of, raise_if_failed, run_name
from evalflows.tasks.score import combine_scores
from evalflows.tasks.snapshot import freeze_dataset, validate_snapshot
from evalflows.tasks.start import lease_of, start_experiments
from evalflows.tasks.take_up import restrict_deployed_run
from evalflows.tasks.test_and_decide import (
    check_results,
    compute_differences,
    decide,
    publish_results,
    rejudgements,
    why_gates_stop,
)
from evalflows.tasks.work_through import answer_and_judge, work_through

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
        waves = waves_of(rounds_of(experiments), spec.batch)

        def check_bundles_if_any() -> None:
            if spec.bundles:
                from evalflows.tasks.bundles import check_bundles  # late: making tasks takes time

                check_bundles(run, experiments)

        def why_stop() -> str | None:
            check_bundles_if_any()
            return why_gates_stop(run, experiments)

        with calls_end_with_the_flow(run):
            controls = run_controls.submit(run, experiments)
            done = work_through(
                run,
                experiments,
                waves,
                answer_and_judge(run),
                planned_of(experiments),
                begun=[controls],
                why_stop=why_stop if spec.batch is not None and resume is None else None,
            )
            combine_scores(run, experiments)
            check_bundles_if_any()
        lease.check()
        lacking = finish(run, experiments, done.stopped)
        if spec.check_results:
            check_results(run, experiments)
        reader = compute_differences(run, experiments)
        if any(gate.judge_drift == "rejudge" for gate in spec.gates) and not spec.is_trial:
            for again in rejudgements(run, experiments, reader):
                run_experiment(again, final=True)
        decisions = decide(run, experiments, reader) if spec.gates and not spec.is_trial else []
        publish_results(run, experiments)
        if decisions:
            announce(decisions)
        raise_failures(done.steps, lacking, experiments)  # only now: what there is has been decided and published
        if spec.compare is not None and done.stopped is None:
            from evalflows.flows.compare_experiments import compare_experiments  # late: making a flow takes time
            from evalflows.tasks.compare import comparison_of

            compare_experiments(comparison_of(spec, experiments))
        if fails_with_gate(spec):
            raise_if_failed(decisions)
        return completed([experiment.experiment_id for experiment in experiments], decisions)


def judge_again(
    experiments: Sequence[str],
    evaluators: Sequence[Any] | None = None,
    *,
    budget_usd: float | None = None,
    max_calls: int | None = None,
) -> list[str]:
    """Judge stored answers again within the flow or the task that calls this, as `evalflows.judge_again` does, and
    return the ids of the new experiments in the order of the old ones.

    They decide no gate, and are no look at final examples. Without limits those of the experiments hold. Errors are
    those of `experiments_again`, and IncompleteError if judgements could not be made.
    """
    judges = None if evaluators is None else GivenJudges(evaluators=evaluators)
    limits = {"budget_usd": budget_usd, "max_calls": max_calls}
    given = {name: limit for name, limit in limits.items() if limit is not None}
    return run_experiment(experiments_again(experiments, judges).model_copy(update=given), final=True)
