"""Compare the answers of existing experiments in pairs, with judges whose biases are measured."""

from functools import partial

from prefect.task_runners import ThreadPoolTaskRunner

from evalflows.engine.chunks import CHUNKS_AT_ONCE
from evalflows.engine.order import waves_of
from evalflows.engine.pair_trials import PairChunk, pair_chunks, planned_pairs
from evalflows.flows.light_flow import light_flow
from evalflows.specs.comparison import ComparisonSpec
from evalflows.tasks.compare import (
    compute_win_rates,
    publish_comparison,
    record_votes,
    resolve_comparison,
    why_comparison_stops,
)
from evalflows.tasks.controls import run_controls
from evalflows.tasks.finish import calls_end_with_the_flow, finish, raise_failures
from evalflows.tasks.progress import run_name
from evalflows.tasks.start import lease_of, start_comparison
from evalflows.tasks.take_up import restrict_deployed_run
from evalflows.tasks.work_through import judge_chunks, work_through

RUNNER: ThreadPoolTaskRunner[PairChunk] = ThreadPoolTaskRunner(max_workers=CHUNKS_AT_ONCE)


@light_flow(name="compare_experiments", flow_run_name=run_name, task_runner=RUNNER)
def compare_experiments(spec: ComparisonSpec, resume: str | None = None) -> str:
    """Judge the answers of experiments in pairs, compute win rates and a ranking, and report the judges' biases.

    Return the comparison's id.

    Args:
        spec: The experiments to compare, and the judges.
        resume: Id of a comparison to resume instead of starting a new one.
    """
    restrict_deployed_run(spec)
    run = resolve_comparison(spec)
    spec = run.prepared.spec
    with lease_of(spec, resume) as lease:
        comparison = start_comparison(run, resume)
        if spec.votes is not None:
            record_votes(run, comparison)
        waves = waves_of(list(pair_chunks(comparison)), spec.batch)
        why_stop = partial(why_comparison_stops, run, comparison) if spec.batch is not None and resume is None else None
        with calls_end_with_the_flow(run):
            controls = run_controls.submit(run, [comparison])
            done = work_through(
                run,
                [comparison],
                waves,
                judge_chunks(run),
                planned_pairs(comparison),
                begun=[controls],
                why_stop=why_stop,
            )
        lease.check()
        lacking = finish(run, [comparison], done.stopped)
        compute_win_rates(run, comparison)
        publish_comparison(run, comparison)
        raise_failures(done.steps, lacking, [comparison])
        return comparison.comparison_id
