"""LangSmith's projects, runs and feedback as its client's methods, and its language of filters of runs:
`and(eq(run_type, "llm"), gt(latency, "5s"))`."""

import json
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta
from itertools import islice, product
from typing import TYPE_CHECKING, Any

from evalflows.compat.langsmith.conversion import dataset_id, example_of, run_key, run_of, score_of
from evalflows.compat.langsmith.datasets import SOURCE
from evalflows.compat.langsmith.schemas import Example, ExampleWithRuns, Feedback, Fields, Identity, Run, TracerSession
from evalflows.compat.refusal import refusing, refusing_unknown
from evalflows.specs.errors import InputError, NotFoundError
from evalflows.specs.frozen import dataclass
from evalflows.specs.moments import in_utc
from evalflows.store.labels import MACHINE, later_labels
from evalflows.store.queries.lookup import find_experiments, unique_name
from evalflows.store.records import DataType, ExperimentRow, LabelRow, derived_id, new_id, to_json
from evalflows.store.snapshots import load_snapshot
from evalflows.store.store import Store

if TYPE_CHECKING:
    import pandas as pd

_FEEDBACK = """
select * from (
    select score_id as id, run_id, metric as key, value, label, data_type, coalesce(error, comment) as comment,
           status, experiment_id, recorded_at, null as comparison_id
    from staging.scores where subject_kind = 'run' and turn is null and status <> 'sampled_out'
    union all
    select label_id, subject_id, metric, value, label, data_type, comment, 'scored', experiment_id, recorded_at, null
    from source.labels where subject_kind = 'run'
    union all
    select judgement_id || '-left', left_run_id, metric,
           coalesce(left_score, case winner when 'left' then 1 when 'right' then 0 when 'tie' then 0.5 end),
           null, 'NUMERIC', coalesce(error, comment), status, left_experiment_id, recorded_at, comparison_id
    from staging.comparisons
    union all
    select judgement_id || '-right', right_run_id, metric,
           coalesce(right_score, case winner when 'right' then 1 when 'left' then 0 when 'tie' then 0.5 end),
           null, 'NUMERIC', coalesce(error, comment), status, right_experiment_id, recorded_at, comparison_id
    from staging.comparisons
)
where ($1::varchar[] is null or list_contains($1::varchar[], run_id))
  and ($2::varchar[] is null or list_contains($2::varchar[], key))
order by recorded_at, id
"""

_OUTPUTS = """
select count(*), avg((status <> 'ok')::int), quantile_cont(latency_s, 0.5), quantile_cont(latency_s, 0.99),
       sum(tokens_in)::bigint, sum(tokens_out)::bigint,
       case when count(cost_usd) = count(*) then sum(cost_usd) end
from source.outputs where experiment_id = ?
"""

_SCORES = """
select subject_kind, metric, count(*) filter (status = 'scored'), avg(value),
       count(*) filter (status in ('failed', 'not_attempted'))
from staging.scores where experiment_id = ? and turn is null group by all order by metric
"""

_NO_LANGUAGE = "filter the returned runs, or query the store with SQL: store.connect()"

_TOKEN = re.compile(r"""\s*(?:("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(-?\d+(?:\.\d+)?)|([A-Za-z_]\w*)|([(),]))""")
_SUCH_AS = 'and(eq(run_type, "llm"), gt(latency, "5s"))'
_CONSTANTS: Mapping[str, Any] = {"true": True, "false": False, "null": None}
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}

_COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "neq": operator.ne,
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}
_OF_RUN = (
    *("id", "name", "run_type", "status", "error", "latency", "start_time", "end_time", "trace_id", "parent_run_id"),
    *("total_tokens", "prompt_tokens", "completion_tokens", "total_cost", "tags", "is_root", "reference_example_id"),
)
_OF_ENTRY = ("metadata_key", "metadata_value", "feedback_key", "feedback_score")
FIELDS = (*_OF_RUN, *_OF_ENTRY)

_WANTED = f"and, or, not, search, has, {', '.join(_COMPARED)}, of a field and a value"


def experiments_of(store: Store, projects: Iterable[Identity], runs: Iterable[str], example: str | None) -> list[str]:
    """Return the experiments named by `projects`, or else those that contain the runs or the example.

    Raise InputError for an unknown project, and if nothing identifies the experiments.
    """
    if experiments := [find_experiments(store, str(project), just_one=True)[0] for project in projects]:
        return experiments
    if not (runs := list(runs)) and example is None:
        raise InputError("list_runs: wanted project_name or project_id, run_ids, or reference_example_id")
    query = "select distinct experiment_id from source.outputs where list_contains($1, run_id) or example_id = $2"
    return [row[0] for row in store.query(query, [runs, example])]


def runs_of(store: Store, experiments: Iterable[str]) -> list[Run]:
    """Return every run of the experiments, newest first."""
    runs = []
    for identity in experiments:
        (row,) = store.read("experiments", identity)
        inputs = {example.example_id: example.inputs for example in load_snapshot(store, row.snapshot_id)}
        runs += [run_of(output, json.loads(inputs[output.example_id])) for output in store.read("outputs", identity)]
    return sorted(runs, key=lambda run: (run.start_time is not None, run.start_time), reverse=True)


def feedback_of(store: Store, runs: Sequence[Identity] | None, keys: str | Sequence[str] | None) -> list[Feedback]:
    """Return the judgements and human labels of some runs, or of all, oldest first."""
    identities = None if runs is None else [run_key(run) for run in runs]
    metrics = [keys] if isinstance(keys, str) else None if keys is None else list(keys)
    return [_feedback(row) for row in store.query(_FEEDBACK, [identities, metrics])]


def _feedback(row: tuple[Any, ...]) -> Feedback:
    identity, run, key, value, label, data_type, comment, status, experiment, recorded_at, comparison = row
    missing = status in ("failed", "not_attempted")
    return Feedback(
        id=identity,
        run_id=run,
        key=key,
        score=score_of(value, data_type),
        value=label,
        comment=comment or (status if missing else None),
        created_at=recorded_at,
        session_id=experiment,
        extra={"error": True} if missing else None,
        comparative_experiment_id=comparison,
    )


def page_of(store: Store, experiment: str) -> str | None:
    """Return the address of an experiment's page, if a dashboard runs here or EVALFLOWS_DASHBOARD_URL names one."""
    from evalflows.api.results import page_of_experiment  # late: results load more than a client needs

    return page_of_experiment(store, experiment)


def with_feedback(store: Store, runs: Iterable[Run]) -> Iterator[Run]:
    """Yield runs with the statistics of their feedback, and the addresses of their pages."""
    runs = list(runs)
    scores: defaultdict[str, defaultdict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for feedback in feedback_of(store, [run.id for run in runs], None) if runs else ():
        scores[feedback.run_id][feedback.key].append(feedback.score)
    pages = {session: page_of(store, session) for run in runs if (session := run.session_id) is not None}
    for run in runs:
        yield replace(
            run,
            feedback_stats={key: _stats(values) for key, values in scores[run.id].items()},
            url=pages.get(run.session_id or ""),
        )


def _stats(values: Sequence[Any]) -> Fields:
    known = [float(value) for value in values if value is not None]
    return {"n": len(known), "avg": sum(known) / len(known) if known else None}


def with_descendants(run: Run) -> Iterator[Run]:
    """Yield a run and all its child runs, each before its children."""
    yield run
    for child in run.child_runs:
        yield from with_descendants(replace(child, session_id=run.session_id))


def all_projects(store: Store, *, include_stats: bool = False) -> Iterator[TracerSession]:
    """Yield all experiments, newest first."""
    newest_first = "select experiment_id from source.experiments order by started_at desc, experiment_id desc"
    for (identity,) in store.query(newest_first):
        yield _project(store, identity, include_stats=include_stats)


def _project(store: Store, identity: str, *, include_stats: bool) -> TracerSession:
    row: ExperimentRow = store.read("experiments", identity)[0]
    return TracerSession(
        id=identity,
        name=unique_name(row.name, identity),
        description=row.description,
        start_time=row.started_at,
        end_time=row.ended_at,
        metadata=json.loads(row.metadata or "{}"),
        reference_dataset_id=dataset_id(row.dataset_name),
        url=page_of(store, identity),
        **(_statistics(store, identity) if include_stats else {}),
    )


def _statistics(store: Store, experiment: str) -> Fields:
    """Return statistics of the runs and, per metric, of the judgements: `n` were scored, `missing` were not."""
    count, error_rate, p50, p99, tokens_in, tokens_out, cost = store.query(_OUTPUTS, [experiment])[0]
    scores = store.query(_SCORES, [experiment])

    def by_metric(subject: str) -> Fields:
        return {
            metric: {"n": n, "avg": mean, "missing": missing}
            for kind, metric, n, mean, missing in scores
            if kind == subject
        }

    return {
        "run_count": count,
        "error_rate": error_rate,
        "latency_p50": None if p50 is None else timedelta(seconds=p50),
        "latency_p99": None if p99 is None else timedelta(seconds=p99),
        "prompt_tokens": tokens_in,
        "completion_tokens": tokens_out,
        "total_cost": cost,
        "feedback_stats": by_metric("run"),
        "session_feedback_stats": by_metric("experiment"),
    }


def _examples_with_runs(store: Store, experiment: str) -> Iterator[ExampleWithRuns]:
    """Yield the examples of an experiment in the dataset's order, each with its runs."""
    (row,) = store.read("experiments", experiment)
    runs: defaultdict[str | None, list[Run]] = defaultdict(list)
    for run in with_feedback(store, reversed(runs_of(store, [experiment]))):
        runs[run.reference_example_id].append(run)
    for example in load_snapshot(store, row.snapshot_id):
        theirs = example_of(example, dataset_id(row.dataset_name))
        yield ExampleWithRuns(
            **{each.name: getattr(theirs, each.name) for each in fields(Example)}, runs=runs[example.example_id]
        )


def _row_of(example: ExampleWithRuns, run: Run) -> Fields:
    columns: Fields = {f"input.{name}": value for name, value in example.inputs.items()}
    columns |= {f"outputs.{name}": value for name, value in (run.outputs or {}).items()}
    columns |= {"execution_time": run.latency, "error": run.error, "id": run.id, "example_id": example.id}
    columns |= {f"reference.{name}": value for name, value in (example.outputs or {}).items()}
    return columns | {f"feedback.{key}": stats["avg"] for key, stats in (run.feedback_stats or {}).items()}


@refusing_unknown
class RunMethods:
    """A project is an experiment; a run is one answer of its target to one example."""

    @refusing(query=_NO_LANGUAGE, trace_filter=_NO_LANGUAGE, tree_filter=_NO_LANGUAGE)
    def list_runs(
        self,
        *,
        project_id: Identity | Sequence[Identity] | None = None,
        project_name: str | Sequence[str] | None = None,
        run_type: str | None = None,
        trace_id: Identity | None = None,
        reference_example_id: Identity | None = None,
        query: str | None = None,
        filter: str | None = None,  # noqa: A002
        trace_filter: str | None = None,
        tree_filter: str | None = None,
        is_root: bool | None = None,
        parent_run_id: Identity | None = None,
        start_time: datetime | None = None,
        error: bool | None = None,
        run_ids: Sequence[Identity] | None = None,
        select: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> Iterator[Run]:
        """Yield the root runs of experiments, newest first; a name means the newest experiment of that name.

        With `run_type`, `trace_id`, `parent_run_id`, `is_root=False` or a filter that names a run's type, place or
        root, child runs too. Runs are always whole, whatever `select` names. Raise InputError if nothing identifies
        the experiments, and for unsupported filters.
        """
        store, given = Store(), None if filter is None else parse(filter)
        example = None if reference_example_id is None else str(reference_example_id)
        ids = None if run_ids is None else {run_key(identity) for identity in run_ids}
        trace, parent = (None if identity is None else run_key(identity) for identity in (trace_id, parent_run_id))
        of_trace = {*(ids or ()), *([trace] if trace else ())}
        experiments = experiments_of(store, _flattened(project_id, project_name), of_trace, example)
        runs: Iterable[Run] = with_feedback(store, runs_of(store, experiments))
        asks_for_children = any((run_type, trace, parent, is_root is False, given and names_children(given)))
        if asks_for_children and is_root is not True:
            runs = (member for run in runs for member in with_descendants(run))
        matching = (
            run
            for run in runs
            if (ids is None or run.id in ids)
            and run_type in (None, run.run_type)
            and trace in (None, run.trace_id)
            and parent in (None, run.parent_run_id)
            and is_root in (None, run.parent_run_id is None)
            and (given is None or matches(given, run))
            and example in (None, run.reference_example_id)
            and error in (None, run.error is not None)
            and (start_time is None or (run.start_time is not None and run.start_time >= start_time))
        )
        return islice(matching, limit)

    @refusing(start_time="a run is found by its id alone")
    def read_run(
        self,
        run_id: Identity,
        load_child_runs: bool = False,
        *,
        project_id: Identity | None = None,
        start_time: datetime | None = None,
    ) -> Run:
        """Return a run, always with its child runs. Raise InputError if it does not exist."""
        run = next(self.list_runs(run_ids=[run_id], project_id=project_id), None)
        if run is None:
            raise NotFoundError(f"run {str(run_id)!r}: not in the store")
        return run

    @refusing(feedback_source_type="filter the returned feedback")
    def list_feedback(
        self,
        *,
        run_ids: Sequence[Identity] | None = None,
        feedback_key: str | Sequence[str] | None = None,
        feedback_source_type: Any = None,
        limit: int | None = None,
    ) -> Iterator[Feedback]:
        """Yield the judgements of runs, oldest first; a failed one has no score, and its error as the comment."""
        return islice(feedback_of(Store(), run_ids, feedback_key), limit)

    @refusing(correction="put it in the comment, or add it as an example to a dataset")
    def create_feedback(
        self,
        run_id: Identity | None = None,
        key: str = "unnamed",
        *,
        score: float | None = None,
        value: str | float | None = None,
        trace_id: Identity | None = None,
        correction: Fields | None = None,
        comment: str | None = None,
        source_info: Mapping[str, Any] | None = None,
        feedback_source_type: str = "api",
    ) -> Feedback:
        """Store feedback on a run as a row of `labels`, a person's unless `feedback_source_type` is model. Raises
        InputError if the run does not exist."""
        given = run_id if run_id is not None else trace_id
        if given is None:
            raise InputError("create_feedback: run_id: got None, wanted the id of a run")
        store, run, batch = Store(), run_key(given), new_id("batch")
        outputs = store.query("select experiment_id, example_id from source.outputs where run_id = ?", [run])
        if not outputs:
            raise InputError(f"create_feedback: run {str(given)!r}: not in the store")
        label, number = (value, score) if isinstance(value, str) else (None, value if score is None else score)
        kind: DataType = "BOOLEAN" if isinstance(number, bool) else "NUMERIC" if number is not None else "CATEGORICAL"
        row = LabelRow(
            label_id=derived_id(batch, run, key),
            batch_id=batch,
            subject_kind="run",
            subject_id=run,
            experiment_id=outputs[0][0],
            example_id=outputs[0][1],
            metric=key,
            value=None if number is None else float(number),
            label=label,
            data_type=None if number is None and label is None else kind,
            comment=comment,
            source=MACHINE if feedback_source_type == "model" else SOURCE,
            metadata=None if source_info is None else to_json(dict(source_info)),
        )
        store.publish("labels", batch, later_labels(store, [row]))
        return next(feedback for feedback in feedback_of(store, [run], key) if feedback.id == row.label_id)

    def read_project(
        self, *, project_id: Identity | None = None, project_name: str | None = None, include_stats: bool = False
    ) -> TracerSession:
        """Return an experiment. Raise InputError if it does not exist."""
        references = _flattened(project_id, project_name)
        if len(references) != 1:
            raise InputError("read_project: wanted exactly one of project_name and project_id")
        (identity,) = find_experiments(Store(), str(references[0]), just_one=True)
        return _project(Store(), identity, include_stats=include_stats)

    def get_test_results(
        self, *, project_id: Identity | None = None, project_name: str | None = None
    ) -> "pd.DataFrame":
        """Return one row per run of an experiment: input.*, outputs.*, reference.*, feedback.*, execution_time, error
        and id, by example."""
        import pandas as pd

        project = self.read_project(project_id=project_id, project_name=project_name)
        rows = [_row_of(example, run) for example in _examples_with_runs(Store(), project.id) for run in example.runs]
        return pd.DataFrame(rows)

    @refusing(
        comparative_experiment_id="use what evaluate_comparative returned, or SQL: the view comparisons",
        filters="filter the returned examples",
    )
    def get_experiment_results(
        self,
        name: str | None = None,
        project_id: Identity | None = None,
        preview: bool = False,
        comparative_experiment_id: Identity | None = None,
        filters: Mapping[Any, Any] | None = None,
        limit: int | None = None,
    ) -> Fields:
        """Return an experiment's `feedback_stats`, `run_stats` and `examples_with_runs`, always whole."""
        project = self.read_project(project_id=project_id, project_name=name, include_stats=True)
        names = ("run_count", "error_rate", "latency_p50", "latency_p99", "prompt_tokens", "completion_tokens")
        return {
            "feedback_stats": {**(project.feedback_stats or {}), **(project.session_feedback_stats or {})},
            "run_stats": {field: getattr(project, field) for field in (*names, "total_tokens", "total_cost")},
            "examples_with_runs": islice(_examples_with_runs(Store(), project.id), limit),
        }

    def has_project(self, project_name: str, *, project_id: str | None = None) -> bool:
        """Return whether there is an experiment of this name."""
        return any(row.name == project_name for row in all_projects(Store()))

    @refusing(dataset_version="filter the returned experiments by start_time")
    def list_projects(
        self,
        project_ids: Sequence[Identity] | None = None,
        name: str | None = None,
        name_contains: str | None = None,
        reference_dataset_id: Identity | None = None,
        reference_dataset_name: str | None = None,
        reference_free: bool | None = None,
        include_stats: bool | None = None,
        dataset_version: str | None = None,
        limit: int | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Iterator[TracerSession]:
        """Yield the experiments that match every given filter, newest first. None of them is free of a dataset."""
        ids = None if project_ids is None else {str(identity) for identity in project_ids}
        dataset = dataset_id(reference_dataset_name) if reference_dataset_id is None else str(reference_dataset_id)
        matching = (
            project
            for project in all_projects(Store(), include_stats=bool(include_stats))
            if (ids is None or project.id in ids)
            and name in (None, project.name)
            and (name_contains or "") in project.name
            and dataset in (None, project.reference_dataset_id)
            and not reference_free
            and (metadata or {}).items() <= project.metadata.items()
        )
        return islice(matching, limit)


def _flattened(*arguments: Identity | Sequence[Identity] | None) -> list[Identity]:
    """Return the ids of all arguments, each of which is None, one id or several."""
    return [
        identity
        for argument in arguments
        if argument is not None
        for identity in (argument if isinstance(argument, Sequence) and not isinstance(argument, str) else [argument])
    ]


@dataclass(frozen=True, slots=True)
class Call:
    """A function and its arguments: calls, values, and the names of fields."""

    name: str
    arguments: tuple[Any, ...]


class Name(str):
    """The name of a field."""

    __slots__ = ()


def parse(text: str) -> Call:
    """Return a filter. Raise InputError, in one line, if it is none."""
    tokens = list(_tokens(text))
    call, end = _parsed(tokens, 0, text)
    if end != len(tokens) or not isinstance(call, Call):
        raise _no_filter(text)
    return call


def _no_filter(text: str) -> InputError:
    return InputError(f"list_runs: filter: got {text!r:.80}, wanted a filter such as {_SUCH_AS}")


def _tokens(text: str) -> Iterator[Any]:
    position = 0
    while position < len(text.rstrip()):
        found = _TOKEN.match(text, position)
        if found is None:
            raise _no_filter(text)
        quoted, number, name, mark = found.groups()
        if quoted is not None:
            yield ("value", re.sub(r"\\(.)", r"\1", quoted[1:-1]))
        elif number is not None:
            yield ("value", float(number))
        elif name is not None:
            yield ("value", _CONSTANTS[name]) if name in _CONSTANTS else ("name", Name(name))
        else:
            yield ("mark", mark)
        position = found.end()


def _parsed(tokens: list[Any], position: int, text: str) -> tuple[Any, int]:
    """Return the call or value that begins at a token, and the place after it."""
    if position >= len(tokens):
        raise _no_filter(text)
    kind, value = tokens[position]
    if kind == "mark":
        raise _no_filter(text)
    if kind == "value" or tokens[position + 1 : position + 2] != [("mark", "(")]:
        return value, position + 1
    arguments, position = [], position + 2
    while tokens[position : position + 1] != [("mark", ")")]:
        argument, position = _parsed(tokens, position, text)
        arguments.append(argument)
        if tokens[position : position + 1] == [("mark", ",")]:
            position += 1
        elif tokens[position : position + 1] != [("mark", ")")]:
            raise _no_filter(text)
    return Call(str(value), tuple(arguments)), position + 1


def matches(call: Call, run: Run) -> bool:
    """Return whether a filter holds for a run.

    Conditions on `metadata_key` and `metadata_value`, and on `feedback_key` and `feedback_score`, hold for one entry
    together. Raise InputError for an unknown function or field.
    """
    metadata = [{"metadata_key": key, "metadata_value": value} for key, value in run.metadata.items()] or [{}]
    feedback: list[Fields] = [
        {"feedback_key": key, "feedback_score": stats.get("avg")} for key, stats in (run.feedback_stats or {}).items()
    ] or [{}]
    return any(_holds(call, run, entry | other) for entry, other in product(metadata, feedback))


def _holds(call: Call, run: Run, entry: Fields) -> bool:
    if call.name in ("and", "or", "not") and all(isinstance(argument, Call) for argument in call.arguments):
        held = [_holds(argument, run, entry) for argument in call.arguments]
        return not any(held) if call.name == "not" else all(held) if call.name == "and" else any(held)
    if call.name == "search" and len(call.arguments) == 1:
        return str(call.arguments[0]).lower() in f"{run.name} {run.inputs} {run.outputs} {run.error}".lower()
    if len(call.arguments) != 2 or not isinstance(call.arguments[0], Name):
        raise InputError(f"list_runs: filter: got {call.name} of {len(call.arguments)}, wanted {_WANTED}")
    name, wanted = call.arguments
    if name not in FIELDS:
        raise InputError(f"list_runs: filter: got the field {str(name)!r}, wanted one of {', '.join(FIELDS)}")
    if name in _OF_ENTRY:
        value = entry.get(name)
    else:
        value = run.parent_run_id is None if name == "is_root" else getattr(run, name)
    if call.name == "has":
        return wanted in (value or ())
    if call.name not in _COMPARED:
        raise InputError(f"list_runs: filter: got {call.name!r}, wanted {_WANTED}")
    wanted = _as_value(name, wanted)
    if name == "error" and isinstance(wanted, bool):
        value = value is not None
    if call.name not in ("eq", "neq") and (value is None or wanted is None):
        return False
    try:
        return _COMPARED[call.name](value, wanted)
    except TypeError:
        raise InputError(f"list_runs: filter: {name}: got {wanted!r:.40}, wanted a value to compare it with") from None


def _as_value(name: str, wanted: Any) -> Any:
    """Return a value as the field has it: seconds of `5s`, and a time."""
    if name == "latency" and isinstance(wanted, str):
        found = re.fullmatch(r"([\d.]+)\s*(ms|s|m|h)", wanted)
        return wanted if found is None else float(found[1]) * _UNITS[found[2]]
    if name in ("start_time", "end_time") and isinstance(wanted, str):
        try:
            return in_utc(datetime.fromisoformat(wanted))
        except ValueError:
            raise InputError(f"list_runs: filter: {name}: got {wanted!r:.40}, wanted a time in ISO 8601") from None
    return wanted


def names_children(call: Call) -> bool:
    """Return whether a filter names what tells child runs from roots."""
    return any(
        names_children(argument)
        if isinstance(argument, Call)
        else argument in ("run_type", "is_root", "parent_run_id", "trace_id")
        for argument in call.arguments
        if isinstance(argument, Call | Name)
    )
