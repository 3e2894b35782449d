"""List experiments and comparisons. Nothing here loads Prefect."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import click
from rich.padding import Padding

from evalflows.cli.late_commands import FORMAT, print_json, with_one_line_errors
from evalflows.cli.output import DECISION_STYLES, GAP, Table, Text, console, echo, echo_error, table
from evalflows.reports.comparison import Overview, comparison_overviews
from evalflows.reports.documents import listed
from evalflows.reports.experiment_report import ExperimentOverview, overviews
from evalflows.reports.names import Version, versions_of
from evalflows.specs.escaping import one_line
from evalflows.store.layout import Layout, quoted
from evalflows.store.queries.conclusions import conclusions_on, worse_before
from evalflows.store.sql import ask
from evalflows.store.store import Store, is_store, no_experiments, no_store

Gates = Mapping[str, Mapping[str, str]]
"""The newest conclusion of each gate on an experiment: by experiment, then by gate."""

_SOURCES = """
select snapshot_id, name, arg_max(source, recorded_at) from dataset_versions where is_one_of(snapshot_id, $1)
group by all
"""

Row = Mapping[str, Text]
"""One line: the texts of its columns, by name."""

DROPPED = ("experiments", "id", "dataset", "version", "answered", "judged", "started (UTC)")
"""The columns that are left out where they do not fit, in this order."""

_WANTED = """
    ($1 is null or starts_with(name, $1)) and ($2 is null or list_contains(tags, $2))
    and ($3 is null or started_at >= $3::timestamp at time zone 'UTC')"""

_NEWEST = "order by started_at desc"

_EXPERIMENTS = f"""
select experiment_id from experiments where {_WANTED} and ($4 is null or dataset_name = $4) {_NEWEST}, target limit $5
"""

MOST = 100
"""Experiments, and comparisons, that are listed as text unless `--limit` says otherwise."""


@click.command()
@click.option("--name", help="Only names that begin with this.")
@click.option("--dataset", help="Only experiments on this dataset.")
@click.option("--tag", help="Only those with this tag.")
@click.option("--all", "with_ids", is_flag=True, help="Print ids and all columns, on two lines where they do not fit.")
@click.option("--since", type=click.DateTime(["%Y-%m-%d", "%Y-%m-%d %H:%M"]), help="Only those started since (UTC).")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help=f"Maximum number of experiments, and of comparisons. Default: {MOST}; as JSON, all.",
)
@FORMAT
@with_one_line_errors
def ls(with_ids: bool, form: str, limit: int | None, **wanted: str | datetime | None) -> None:
    """List experiments with the decisions of their gates, and comparisons, newest first."""
    if not is_store(layout := Layout.at()):
        echo_error(no_store(layout))
        _print_list([], [], {}, form, "", with_ids=with_ids)
        return
    store = Store(layout.root)
    values: list[object] = [wanted[name] for name in ("name", "tag", "since", "dataset")]
    is_filtered = any(value is not None for value in values)
    none = "no experiments of that kind" if is_filtered else one_line(no_experiments(layout))
    most = limit if limit or form == "json" else MOST
    values.append(None if most is None else most + 1)  # one more tells whether there are others
    (found,) = ask(store, (_EXPERIMENTS, values))
    ids = [identity for (identity,) in found]
    # No parameters: the files of owners in parameters are verified, and a list goes on without a damaged one.
    these = f"is_one_of(experiment_id, [{', '.join(map(quoted, ids[:most]))}]) {_NEWEST}, target"
    experiments = overviews(store, these, [], None if most is None else ids[:most]) if ids else []
    compared = comparison_overviews(store, f"{_WANTED} and $4 is null {_NEWEST} limit $5", values)
    are_all = most is None or max(len(ids), len(compared)) <= most
    compared = compared[:most]
    gates = conclusions_on(store, [experiment.experiment_id for experiment in experiments]) if experiments else {}
    if form != "json":
        experiments = _with_sources(store, experiments)
        before = worse_before(store, [*gates]) if gates else {}
        gates = {owner: _with_earlier(by_gate, before.get(owner, {})) for owner, by_gate in gates.items()}
    _print_list(experiments, compared, gates, form, none, with_ids=with_ids)
    if not are_all and form != "json":
        echo(f"only the newest {most} are shown: --limit shows more")


def _with_earlier(conclusions: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """Return conclusions by gate, where one that has concluded worse before says so after its name."""
    return {f"{gate} ({before[gate]} before)" if gate in before else gate: said for gate, said in conclusions.items()}


def _with_sources(store: Store, experiments: Sequence[ExperimentOverview]) -> list[ExperimentOverview]:
    """Name datasets by their sources if several have one name, as two files of one name in two folders have."""
    (rows,) = ask(store, (_SOURCES, [[experiment.snapshot_id for experiment in experiments]]))
    sources: dict[str, set[str]] = {}
    for _, name, source in rows:
        sources.setdefault(name, set()).add(source)
    apart = {snapshot: source for snapshot, name, source in rows if source and len(sources[name]) > 1}
    return [
        replace(experiment, dataset_name=apart.get(experiment.snapshot_id, experiment.dataset_name))
        for experiment in experiments
    ]


def _print_list(
    experiments: Sequence[ExperimentOverview],
    compared: Sequence[Overview],
    gates: Gates,
    form: str,
    none: str,
    *,
    with_ids: bool,
) -> None:
    """Print experiments and comparisons; as a table, `none` if there are none."""
    if form == "json":
        print_json(listed(experiments, compared, gates))
        return
    if not experiments and not compared and none:
        echo(none)
    if not with_ids:
        versions = versions_of(
            (experiment.experiment_id, experiment.application_version, experiment.git_commit)
            for experiment in experiments
        )
        _print_rows([_row(experiment, gates.get(experiment.experiment_id, {}), versions) for experiment in experiments])
        _print_rows([_row_of_pairs(overview) for overview in compared])
        return
    if experiments:
        lines = [_experiment_lines(experiment, gates.get(experiment.experiment_id, {})) for experiment in experiments]
        _print(_experiments(experiments, gates), lines)
    if compared:
        _print(_comparisons(compared), [_comparison_lines(overview) for overview in compared])


def _print_rows(rows: Sequence[Row]) -> None:
    """Print one line each, with as many columns as fit. What still does not fit is cut."""
    if not rows:
        return
    out = console()
    columns = every = [name for name in rows[0] if any(row[name].plain for row in rows)]
    for dropped in (None, *DROPPED):
        columns = [name for name in columns if name != dropped]
        lines = table(*columns)
        for row in rows:
            lines.add_row(*(row[name] for name in columns))
        if lines.fits(out.width):
            out.print(lines)
            break
    else:
        for row in rows:
            out.print(Text("  ").join(row[name] for name in columns), no_wrap=True, overflow="ellipsis")
    shown = (*columns, "id") if "experiment" in rows[0] else columns  # its name is as good as an id
    if hidden := [name for name in every if name not in shown]:
        echo(f"not shown: {', '.join(hidden)}: --all")


def _row(run: ExperimentOverview, gates: Mapping[str, str], versions: Mapping[str, Version]) -> Row:
    state = [*([] if run.state == "completed" else [run.state]), *([f"{run.failed} failed"] if run.failed else [])]
    return {
        "experiment": Text(run.name, "bold"),
        "version": Text(versions[run.experiment_id].short if run.experiment_id in versions else ""),
        "gates": _gates_in_brief(gates),
        "state": Text(", ".join(state), "bold red"),
        "answered": Text(f"{run.answered}/{run.planned}"),
        "started (UTC)": Text(_when(run)),
        "dataset": Text(run.dataset_name or ""),
        "id": Text(run.experiment_id),
    }


def _row_of_pairs(run: Overview) -> Row:
    return {
        "comparison": Text(run.name, "bold"),
        "state": Text("" if run.state == "completed" else run.state, "bold red"),
        "judged": Text(_judged(run)),
        "started (UTC)": Text(_when(run)),
        "experiments": Text(", ".join(run.experiments)),
        "id": Text(run.comparison_id),
    }


def _gates_in_brief(conclusions: Mapping[str, str]) -> Text:
    """Return each conclusion with its gates, that of a FAIL first."""
    out = Text()
    for conclusion, style in sorted(DECISION_STYLES.items(), key=lambda item: item[0] == "PASS"):
        if gates := [gate for gate, said in conclusions.items() if said == conclusion]:
            out.append("; " if out.plain else "").append(conclusion, style).append(f" {', '.join(gates)}")
    return out


def _print(rows: Table, lines: Sequence[tuple[Text, Text]]) -> None:
    """Print a table; if it is too wide, two lines for each of its rows."""
    out = console()
    if rows.fits(out.width):
        out.print(rows)
        return
    for first, second in lines:
        out.print(first)
        out.print(Padding(second, (0, 0, 0, GAP)))


def _experiments(experiments: Sequence[ExperimentOverview], gates: Gates) -> Table:
    decided = ("gates",) if gates else ()
    out = table(
        "experiment", "id", "state", "answered", "failed", "dataset", "started (UTC)", *decided, wrapped=("gates",)
    )
    for experiment in experiments:
        answered = f"{experiment.answered}/{experiment.planned}"
        cells = (
            experiment.name,
            experiment.experiment_id,
            experiment.state,
            answered,
            str(experiment.failed),
            experiment.dataset_name or "",
            _when(experiment),
        )
        out.add_row(*cells, *([_gates(gates.get(experiment.experiment_id, {}))] if gates else []))
    return out


def _experiment_lines(run: ExperimentOverview, gates: Mapping[str, str]) -> tuple[Text, Text]:
    heading = _heading(run.name, run.experiment_id)
    failed = f", {run.failed} failed" if run.failed else ""
    dataset = f", dataset {run.dataset_name}" if run.dataset_name else ""
    line = f"{_unless_completed(run.state)}{run.answered}/{run.planned} answered{failed}{dataset}, {_when(run)} UTC"
    return heading.append("  ").append(_gates(gates)) if gates else heading, Text(line)


def _gates(conclusions: Mapping[str, str]) -> Text:
    out = Text()
    for number, (gate, conclusion) in enumerate(conclusions.items()):
        out.append(f"{', ' if number else ''}{gate}: ").append(conclusion, DECISION_STYLES[conclusion])
    return out


def _comparisons(compared: Sequence[Overview]) -> Table:
    columns = ("comparison", "id", "state", "judged", "started (UTC)", "experiments")
    out = table(*columns, wrapped=("experiments",))
    for run in compared:
        out.add_row(run.name, run.comparison_id, run.state, _judged(run), _when(run), ", ".join(run.experiments))
    return out


def _comparison_lines(run: Overview) -> tuple[Text, Text]:
    line = f"{_unless_completed(run.state)}{_judged(run)} judged, {_when(run)} UTC; {', '.join(run.experiments)}"
    return _heading(run.name, run.comparison_id), Text(line)


def _heading(name: str, identity: str) -> Text:
    return Text().append(name, "bold").append(f"  {identity}")


def _judged(run: Overview) -> str:
    return f"{run.judged + run.decided_without_judge}/{run.planned}"


def _unless_completed(state: str) -> str:
    return "" if state == "completed" else f"{state}, "


def _when(run: ExperimentOverview | Overview) -> str:
    return f"{run.started_at:%Y-%m-%d %H:%M}"
