"""A comparison: answers of experiments that exist, in pairs, by judges whose preferences are known."""

from prefect import flow
from prefect.task_runners import ThreadPoolTaskRunner

from specs.comparison import ComparisonSpec
from tasks.chunk import CHUNKS_AT_ONCE, retries_of
from tasks.compare import compare_chunk
from tasks.finish import calls_end_with_the_flow, raise_what_failed
from tasks.finish_comparison import finish_comparison
from tasks.pairs import PairChunk, pair_chunks, planned_pairs
from tasks.progress import wait_and_tell
from tasks.publish_comparison import publish_comparison
from tasks.settle_comparison import settle_comparison
from tasks.start_comparison import start_comparison
from tasks.weigh_preferences import weigh_preferences

RUNNER: ThreadPoolTaskRunner[PairChunk] = ThreadPoolTaskRunner(max_workers=CHUNKS_AT_ONCE)


@flow(name="compare_experiments", flow_run_name="{spec.title}", task_runner=RUNNER)  # type: ignore[arg-type]  # its future is one of Prefect's
def compare_experiments(spec: ComparisonSpec, resume: str | None = None) -> str:
    """Check the experiments, judge their answers in pairs, weigh who wins, rank them, tell what the judge prefers.

    Returns the comparison's id.

    Args:
        spec: What to compare, and by whom.
        resume: A comparison to go on with, instead of starting anew.
    """
    spec = settle_comparison(spec)
    comparison = start_comparison(spec, resume)
    compare = compare_chunk.with_options(**retries_of(spec))
    with calls_end_with_the_flow():
        steps = [compare.submit(chunk) for chunk in pair_chunks(comparison)]
        wait_and_tell(steps, planned_pairs(comparison))
    lacking = finish_comparison(comparison)
    weigh_preferences(comparison)
    publish_comparison(comparison)
    raise_what_failed(steps, lacking)
    return comparison.comparison_id
