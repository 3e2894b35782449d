"""What a person sees at the end of a run in Prefect's UI: one page with the verdicts."""

from collections.abc import Iterable, Sequence

from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.context import FlowRunContext
from prefect.settings import get_current_settings

from store.parquet import Store
from store.records import ExperimentRow
from store.results import Result, results_of, sentences


@task(cache_policy=NO_CACHE, persist_result=False)
def publish_results(rows: list[ExperimentRow]) -> str:
    """Keep the results as a markdown artifact called `result`. Returns the run group."""
    results = results_of(Store(), [row.experiment_id for row in rows])
    page = markdown(rows[0].run_group, results, sentences(results), _links(rows))
    create_markdown_artifact(key="result", markdown=page, description=f"Results of {rows[0].name}")
    return rows[0].run_group


def markdown(run_group: str, results: Sequence[Result], said: Sequence[str], links: Sequence[str]) -> str:
    """The page: what is to be said of the run, the table of every metric of every system, and where to look on."""
    header = (
        "system",
        "metric",
        "mean",
        "interval",
        "difference",
        "p",
        "p adjusted",
        "verdict",
        "cost (USD)",
        "missing",
        "n",
    )
    table = markdown_table(header, [_cells(result) for result in results if result.says_something])
    return "\n\n".join(
        [
            "\n".join(f"- {escaped(sentence)}" for sentence in said),
            table,
            "\n".join(f"- {link}" for link in links),
            f"In the shell: `evalflows show {run_group}`",
        ]
    )


def _cells(result: Result) -> list[str]:
    return [
        result.target,
        result.metric,
        result.mean_text,
        result.interval_text,
        result.difference_text,
        result.p_text,
        result.p_adjusted_text,
        result.verdict_text,
        result.cost_text,
        str(result.missing),
        result.scored_text,
    ]


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in markdown, whatever its cells hold."""
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return "\n".join([*lines, *(f"| {' | '.join(map(escaped, row))} |" for row in rows)])


def escaped(text: str) -> str:
    """Text that a cell of a table can hold."""
    return text.replace("|", "\\|").replace("\n", " ")


def _links(rows: Sequence[ExperimentRow]) -> list[str]:
    context, ui = FlowRunContext.get(), get_current_settings().ui_url
    links = [f"experiment `{row.experiment_id}` ({row.target})" for row in rows]
    links.append(f"snapshot `{rows[0].snapshot_id}` of {rows[0].dataset_name or 'unnamed rows'}")
    if ui and context and context.flow_run:
        links.append(f"[this run]({ui}/runs/flow-run/{context.flow_run.id})")
    return links
