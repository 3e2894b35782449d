"""An experiment: a frozen dataset, answered by every target, judged by every evaluator, and weighed."""

from typing import Any

from prefect import flow
from prefect.futures import PrefectFuture
from prefect.task_runners import ThreadPoolTaskRunner

from flows.compare_experiments import compare_experiments
from specs.experiment import ExperimentSpec
from tasks.chunk import CHUNKS_AT_ONCE, Chunk, retries_of, waves_of
from tasks.combine import combine_scores
from tasks.controls import try_judges
from tasks.decide import decide, have_decided
from tasks.evaluate import evaluate_chunk
from tasks.execute import execute_chunk
from tasks.finish import calls_end_with_the_flow, finish_experiments, raise_what_failed
from tasks.progress import planned_of, wait_and_tell
from tasks.publish import publish_results
from tasks.settle_comparison import comparison_of
from tasks.snapshot import freeze_dataset
from tasks.start import start_experiments
from tasks.validate import validate_snapshot
from tasks.weigh import weigh_differences

RUNNER: ThreadPoolTaskRunner[Chunk] = ThreadPoolTaskRunner(max_workers=2 * CHUNKS_AT_ONCE)


@flow(name="run_experiment", flow_run_name="{spec.name}", task_runner=RUNNER)  # type: ignore[arg-type]  # its future is one of Prefect's
def run_experiment(spec: ExperimentSpec, resume: str | None = None) -> list[str]:
    """Freeze the dataset, check it, run the targets, judge every answer, combine the scores, weigh the difference,
    and say of every gate whether it passes.

    Last, the answers are compared in pairs, where the spec says how.

    Returns the experiments' ids.

    Args:
        spec: What to run.
        resume: A run group to go on with, instead of starting anew.
    """
    spec = freeze_dataset(spec)
    validate_snapshot(spec)
    experiments = start_experiments(spec, resume)
    execute, evaluate = (step.with_options(**retries_of(spec)) for step in (execute_chunk, evaluate_chunk))
    with calls_end_with_the_flow():
        steps: list[PrefectFuture[Any]] = [try_judges.submit(experiments)]
        stopped = None
        for wave in waves_of(spec, experiments):
            for chunk in wave:
                answered = execute.submit(chunk)
                steps += [answered, evaluate.submit(chunk, return_state=False, wait_for=[answered])]
            wait_and_tell(steps, planned_of(experiments))
            if spec.batch is not None and resume is None and (stopped := have_decided(spec, experiments)):
                break
        combine_scores(experiments)
    lacking = finish_experiments(experiments, stopped)
    weigh_differences(experiments)
    if spec.gates:
        decide(spec, experiments)
    publish_results(experiments)
    raise_what_failed(steps, lacking, experiments)
    if spec.compare is not None and stopped is None:
        compare_experiments(comparison_of(spec, experiments))
    return [experiment.experiment_id for experiment in experiments]
