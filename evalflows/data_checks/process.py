"""Checks in a process of their own: what it is asked, what is expected of datasets and results, and the rows of
`checks` that come of it.

So the run waits less, and never imports Great Expectations itself.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from tempfile import TemporaryFile
from typing import IO, Any, Literal, get_args

from pydantic import TypeAdapter, ValidationError

from evalflows.specs.dataset import DatasetSpec, Expectation
from evalflows.specs.errors import IncompleteError, InputError, StorageError, first_problem, last_line
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.files import located
from evalflows.store.file_formats import parse_json
from evalflows.store.queries.result_columns import COUNTED, by, value_of
from evalflows.store.records import CheckRow, ExperimentRow, OutputStatus, ScoreStatus, derived_id, to_json
from evalflows.store.row_specs import experiment_spec
from evalflows.store.store import Store

SHOWN_VALUES = 20
"""Unexpected values that a result keeps."""


def merged(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the results of an expectation about single rows, on blocks of rows, as one on all of them.

    Of several that raised, the first stays.
    """
    raised = [result for result in results if _raised(result.get("exception_info") or {})]
    first, figures = dict((raised or results)[0]), [result.get("result") or {} for result in results]
    if raised or len(results) == 1:
        return first
    sums = {name: sum(each.get(name) or 0 for each in figures) for name in _SUMS}
    counted = sums["element_count"] - sums["missing_count"]
    whole = {
        **sums,
        "unexpected_percent": _percent(sums["unexpected_count"], counted),
        **{name: [value for each in figures for value in each.get(name) or ()][:SHOWN_VALUES] for name in _SHOWN},
    }
    if any("missing_percent" in each for each in figures):
        whole["missing_percent"] = _percent(sums["missing_count"], sums["element_count"])
    return first | {"success": all(result["success"] for result in results), "result": whole}


def _percent(count: int, of: int) -> float | None:
    return count / of * 100 if of else None


_SUMS = ("element_count", "unexpected_count", "missing_count")
_SHOWN = ("partial_unexpected_list", "partial_unexpected_index_list")
"""The unexpected values, and for each the row that it is in: {column: value}, if that was asked for."""


def check_row(result: Mapping[str, Any], kind: Literal["snapshot", "experiment"], subject: str, batch: str) -> CheckRow:
    """Return the row of a result. A check that raised has not passed, whatever `success` says."""
    config = result["expectation_config"]
    figures = _with_places(result.get("result") or {}, config["kwargs"].get("column"))
    kwargs = {name: value for name, value in config["kwargs"].items() if name != "batch_id"}
    raised = _raised(result.get("exception_info") or {})
    return CheckRow(
        check_id=derived_id(batch, config["type"], to_json(kwargs)),
        batch_id=batch,
        subject_kind=kind,
        subject_id=subject,
        name=config["type"],
        column_name=kwargs.get("column"),
        passed=None if raised else bool(result["success"]),
        severity="error" if config.get("severity", "critical") == "critical" else "warning",
        n_checked=figures.get("element_count"),
        n_unexpected=figures.get("unexpected_count"),
        observed=to_json(_observed(figures)),
        expected=to_json(kwargs),
        message=raised or _message(config["type"], kwargs, figures, success=bool(result["success"])),
    )


def _with_places(figures: Mapping[str, Any], column: str | None) -> dict[str, Any]:
    """Return figures with the row of each unexpected value, but for that value; without, if no columns tell it."""
    rows = figures.get("partial_unexpected_index_list") or ()
    places = [{name: value for name, value in row.items() if name != column} for row in rows if isinstance(row, dict)]
    return dict(figures) | {"partial_unexpected_index_list": places or None}


def _raised(information: Mapping[str, Any]) -> str | None:
    """Return the error raised inside Great Expectations, which reports it only here."""
    nested = [details for details in information.values() if isinstance(details, Mapping)]
    for details in [information, *nested]:
        if details.get("raised_exception"):
            return f"could not be checked: {' '.join(str(details.get('exception_message')).split())}"
    return None


def _observed(figures: Mapping[str, Any]) -> dict[str, Any]:
    names = ("observed_value", "unexpected_percent", "missing_percent", *_SHOWN)
    return {name: figures[name] for name in names if figures.get(name) is not None}


def _message(type_: str, kwargs: Mapping[str, Any], figures: Mapping[str, Any], *, success: bool) -> str:
    wanted = _wanted(type_, kwargs)
    if success:
        return wanted
    if not figures.get("unexpected_count"):
        return f"wanted {wanted}; got {figures.get('observed_value', 'nothing')}"
    share = f"{figures['unexpected_count']} of {figures['element_count']} fail"
    return f"wanted {wanted}; {share}, such as {', '.join(found_values(figures)[:3])}"


def _wanted(type_: str, kwargs: Mapping[str, Any]) -> str:
    what = type_.removeprefix("expect_").replace("_", " ")
    column, condition = kwargs.get("column"), kwargs.get("row_condition")
    rest = ", ".join(f"{name} {value}" for name, value in kwargs.items() if name not in _SAID)
    where = f" where {_condition(condition)}" if condition else ""
    return f"{f'{column}: ' if column else ''}{what}{f' ({rest})' if rest else ''}{where}"


def without_values(check: CheckRow) -> str:
    """Return the message of a check without the values of the data that it quotes, for what Prefect keeps."""
    wanted = _wanted(check.name, json.loads(check.expected or "{}"))
    if check.passed is None:
        return f"could not be checked: {wanted}"
    failed = f"; {check.n_unexpected} of {check.n_checked} fail" if check.n_unexpected else ""
    return wanted if check.passed else f"wanted {wanted}{failed}"


_SAID = ("column", "severity", "row_condition")


def _condition(condition: object) -> str:
    """Return in words the conditions that our expectations have: a column is filled, or compared with values."""
    if not isinstance(condition, Mapping) or "column" not in condition:
        return str(condition)
    column = condition["column"]["name"]
    if condition.get("type") == "nullity":
        return f"{column} is {'null' if condition['is_null'] else 'not null'}"
    return f"{column} {str(condition.get('operator')).lower()} {condition.get('parameter')}"


def found_values(figures: Mapping[str, Any]) -> list[str]:
    """Return the unexpected values that a result keeps, each with its row if that is known."""
    values = [repr(value) for value in figures.get("partial_unexpected_list") or ()]
    rows = figures.get("partial_unexpected_index_list")
    if not rows:
        return values
    places = [", ".join(f"{name} {value}" for name, value in sorted(row.items()) if value is not None) for row in rows]
    return [f"{value} ({place})" for value, place in zip(values, places, strict=False)]


UNIT = (0.0, 1.0)
"""The range of a composite, unless another is declared."""


def expect(type_: str, column: str, severity: str = "critical", **kwargs: Any) -> Expectation:
    """Return an expectation about the values of a column."""
    fields = {"type": f"expect_column_values_to_{type_}", "kwargs": {"column": column} | kwargs, "severity": severity}
    return Expectation.model_validate(fields)


def evaluators_of(spec: ExperimentSpec) -> list[str]:
    """Return the names of what judges every run, or, if sampled, says of every run that it was left out."""
    return [evaluator.metric for evaluator in spec.evaluators] + [composite.name for composite in spec.composites]


def summaries_of(spec: ExperimentSpec) -> list[str]:
    """Return the names of what judges all runs together."""
    return [evaluator.metric for evaluator in spec.summary_evaluators]


def ranges_of(spec: ExperimentSpec) -> Mapping[str, tuple[float, float]]:
    """Return the range of each metric that has one."""
    declared = {name: metric.range for name, metric in spec.metrics.items() if metric.range is not None}
    return dict.fromkeys((composite.name for composite in spec.composites), UNIT) | declared


def of_runs(experiment: ExperimentRow) -> list[Expectation]:
    """Each planned run has one output, and a score by each evaluator."""
    judged = [by(evaluator) for evaluator in evaluators_of(experiment_spec(experiment))]
    return [
        expect("be_between", "runs.outputs", min_value=1, max_value=1),
        *(expect("be_between", name, min_value=1) for name in judged),
    ]


def of_summaries(experiment: ExperimentRow) -> list[Expectation]:
    """Each summary evaluator has a score."""
    return [expect("be_between", "summaries.scores", min_value=1)] if summaries_of(experiment_spec(experiment)) else []


def of_outputs(experiment: ExperimentRow) -> list[Expectation]:
    """Each output is of a planned run; it has an answer in JSON, or the reason why not. No amount is negative."""
    answered = _among("outputs.status", ["ok"])
    lacking = _among("outputs.status", ["failed", "not_attempted"])
    return [
        expect("not_be_null", "outputs.example"),
        expect("be_between", "outputs.repetition", min_value=0, max_value=experiment.repetitions - 1),
        expect("be_in_set", "outputs.status", value_set=[*get_args(OutputStatus)]),
        expect("not_be_null", "outputs.outputs", row_condition=answered),
        expect("be_json_parseable", "outputs.outputs", row_condition=answered),
        expect("not_be_null", "outputs.error", "warning", row_condition=lacking),
        *(expect("be_between", f"outputs.{name}", min_value=0) for name in COUNTED),
    ]


def of_scores(experiment: ExperimentRow) -> list[Expectation]:
    """Each score is of a known run and has no double; it has a value in the range, or the reason why not."""
    scored = _among("scores.status", ["scored"])
    others = _among("scores.status", [status for status in get_args(ScoreStatus) if status != "scored"])
    missing = _among("scores.status", ["failed", "not_attempted"])
    return [
        expect("not_be_null", "scores.subject"),
        expect("be_between", "scores.rows_of_key", min_value=1, max_value=1),
        expect("be_in_set", "scores.status", value_set=[*get_args(ScoreStatus)]),
        expect("not_be_null", "scores.result", row_condition=scored),
        expect("be_null", "scores.result", row_condition=others),
        expect("be_in_set", "scores.is_finite", value_set=[True]),
        *_in_range(experiment_spec(experiment)),
        expect("not_be_null", "scores.error", "warning", row_condition=missing),
        expect("be_between", "scores.sampling_rate", min_value=0, max_value=1, strict_min=True),
        *(expect("be_between", f"scores.{name}", "warning", min_value=0) for name in COUNTED),
    ]


def _in_range(spec: ExperimentSpec) -> list[Expectation]:
    return [
        expect("be_between", value_of(metric), min_value=low, max_value=high, row_condition=_filled(value_of(metric)))
        for metric, (low, high) in ranges_of(spec).items()
    ]


def _among(column: str, values: Sequence[str]) -> dict[str, Any]:
    return {"type": "comparison", "column": {"name": column}, "operator": "IN", "parameter": [*values]}


def _filled(column: str) -> dict[str, Any]:
    return {"type": "nullity", "column": {"name": column}, "is_null": False}


_EXPECTATIONS = TypeAdapter(list[Expectation])


def load_expectations(source: Sequence[Expectation] | str | None) -> list[Expectation]:
    """Return the given expectations, or read them from a suite file in Great Expectations' format.

    Raises InputError if the file cannot be read or is not a suite.
    """
    if not isinstance(source, str):
        return list(source or ())
    try:
        content = parse_json(located(source).read_bytes(), source)
    except OSError as error:
        raise InputError(f"{source}: cannot be read: {error.strerror or error}") from error
    expectations = content.get("expectations") if isinstance(content, dict) else content
    if not isinstance(expectations, list):
        got = type(expectations).__name__
        raise InputError(f"{source}: got {got}, wanted a list of expectations, or a suite with 'expectations'")
    try:
        return _EXPECTATIONS.validate_python(expectations)
    except ValidationError as error:
        raise InputError(first_problem(error, source)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest:
    """A snapshot to check, with the expectations of its spec, and in which store."""

    root: str
    snapshot: str
    own: list[Expectation]

    @classmethod
    def of(cls, store: Store, dataset: DatasetSpec) -> "CheckRequest":
        """Return the request for a frozen dataset. Raise InputError for a suite that cannot be read."""
        own = load_expectations(dataset.expectations)
        return cls(root=store.layout.root, snapshot=dataset.snapshot or "", own=own)

    def to_json(self) -> str:
        return json.dumps({"root": self.root, "snapshot": self.snapshot, "own": _plain(self.own)})  # keeps the order

    @property
    def batch(self) -> str:
        """The batch of the checks: the same for the same snapshot and expectations."""
        return derived_id("checks", self.snapshot, to_json(_plain(self.own)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRequest:
    """Finished experiments whose results to check, each with the batch of its checks, and in which store."""

    root: str
    batches: dict[str, str]

    def to_json(self) -> str:
        return json.dumps({"root": self.root, "batches": self.batches})


def batch_of_results(row: ExperimentRow) -> str:
    """Return the batch of the checks of an experiment's results: another once it was resumed, or if more is checked."""
    suite = to_json(_plain([*of_runs(row), *of_summaries(row), *of_outputs(row), *of_scores(row)]))
    return derived_id("results", row.experiment_id, str(row.ended_at), suite)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """Batches of checks of which to make pages, each with its title, and in which store."""

    root: str
    titles: dict[str, str]

    def to_json(self) -> str:
        return json.dumps({"root": self.root, "titles": self.titles})


def from_json(text: str) -> CheckRequest | ResultRequest | PageRequest:
    """Return the request that one of them wrote."""
    fields = json.loads(text)
    if "titles" in fields:
        return PageRequest(**fields)
    if "batches" in fields:
        return ResultRequest(**fields)
    return CheckRequest(**fields | {"own": [Expectation.model_validate(expectation) for expectation in fields["own"]]})


def _plain(expectations: Sequence[Expectation]) -> list[dict[str, object]]:
    return [expectation.model_dump() for expectation in expectations]


COMMAND = (sys.executable, "-P", "-m", "evalflows.data_checks.worker")
ERRORS: dict[str, type[Exception]] = {error.__name__: error for error in (InputError, StorageError)}


class CheckProcess:
    """A process that answers one request. It ends with this one at the latest: then its stdin closes."""

    def __init__(self, request: str) -> None:
        with ExitStack() as stack:
            # Files, as pipes would have to be read all the time.
            self._answer, self._log = (stack.enter_context(TemporaryFile()) for _ in range(2))
            self._popen = subprocess.Popen(
                COMMAND, stdin=subprocess.PIPE, stdout=self._answer, stderr=self._log, start_new_session=True
            )
            stack.callback(self._end)
            with suppress(BrokenPipeError):  # it has ended, and `answer` says how
                self._stdin.write(f"{request}\n".encode())
                self._stdin.flush()
            self._stack = stack.pop_all()

    def answer(self) -> str:
        """Return what it wrote, once it has ended. Raise IncompleteError if it failed."""
        if code := self._popen.wait():
            self._log.seek(0)
            last = last_line(self._log.read().decode(errors="replace"))
            raise IncompleteError(f"data checks: their process ended with exit code {code}: {last}")
        self._answer.seek(0)
        return self._answer.read().decode()

    def close(self) -> None:
        """End it if it still runs."""
        self._stack.close()

    @property
    def _stdin(self) -> IO[bytes]:
        assert self._popen.stdin is not None
        return self._popen.stdin

    def _end(self) -> None:
        self._popen.kill()
        self._popen.wait()
        with suppress(BrokenPipeError):  # what it did not read
            self._stdin.close()


_begun: ContextVar[dict[str, CheckProcess] | None] = ContextVar("evalflows_begun_checks", default=None)
"""The processes of this run, by request."""


@contextmanager
def checks_end_here() -> Iterator[None]:
    """End the processes that were begun in this block, at its end. Within another such block, do nothing."""
    if _begun.get() is not None:
        yield
        return
    begun: dict[str, CheckProcess] = {}
    token = _begun.set(begun)
    try:
        yield
    finally:
        _begun.reset(token)
        for process in begun.values():
            process.close()


def begin_checks(store: Store, request: CheckRequest) -> None:
    """Begin to check a snapshot without waiting, if that was not done before. Outside of a block, do nothing."""
    begun, text = _begun.get(), request.to_json()
    if begun is not None and text not in begun and not store.is_sealed("checks", request.batch):
        begun[text] = CheckProcess(text)


def checks_of(request: CheckRequest | ResultRequest) -> list[CheckRow]:
    """Return the checks of a snapshot or of results, as soon as the process that makes them has ended.

    Raise InputError for an unknown or misconfigured expectation, and IncompleteError if the process failed.
    """
    return [CheckRow(**columns) for columns in _answer(request.to_json())["checks"]]


def pages_of(request: PageRequest) -> dict[str, str]:
    """Return the Data Docs of batches of checks, by batch. Raise IncompleteError if the process failed."""
    pages: dict[str, str] = _answer(request.to_json())["pages"]
    return pages


def _answer(text: str) -> Any:
    begun = _begun.get() or {}
    with closing(begun.pop(text) if text in begun else CheckProcess(text)) as process:
        result = json.loads(process.answer())
    if error := result.get("error"):
        raise ERRORS[error](result["message"])
    return result


def finished(store: Store, experiment_id: str) -> ExperimentRow:
    """Return the row of a finished experiment. Raise InputError if it is not."""
    row: ExperimentRow
    (row,) = store.read("experiments", experiment_id)
    if row.state != "completed":
        raise InputError(
            f"experiment {row.name!r} ({row.experiment_id}): got one that is not finished, wanted a finished one; "
            f"`evalflows resume {row.experiment_id}` continues"
        )
    return row


def check_results(
    store: Store, experiments: Sequence[ExperimentRow], flow_run_id: str | None = None
) -> dict[str, list[CheckRow]]:
    """Check the results of finished experiments, publish the checks that are new, and return all, by experiment.

    Those that do not hold come first. Raise IncompleteError if the process that checks them failed.
    """
    batches = {row.experiment_id: batch_of_results(row) for row in experiments}
    new = {identity: batch for identity, batch in batches.items() if not store.is_sealed("checks", batch)}
    if new:
        made = checks_of(ResultRequest(root=store.layout.root, batches=new))
        for batch in new.values():
            of_one = [replace(check, flow_run_id=flow_run_id) for check in made if check.batch_id == batch]
            store.publish("checks", batch, of_one)
    return {identity: _sorted(store.read("checks", batch)) for identity, batch in batches.items()}


def snapshot_checks(store: Store, snapshot: str) -> str:
    """Return the newest batch of checks of a snapshot; without any, check it by our expectations."""
    query = """select batch_id from source.checks where subject_kind = 'snapshot' and subject_id = ?
               order by recorded_at desc, batch_id limit 1"""
    if found := store.query(query, [snapshot]):
        return str(found[0][0])
    request = CheckRequest(root=store.layout.root, snapshot=snapshot, own=[])
    store.publish("checks", request.batch, checks_of(request))
    return request.batch


def _sorted(checks: Sequence[CheckRow]) -> list[CheckRow]:
    return sorted(checks, key=lambda row: (row.passed is True, row.severity, row.column_name or "", row.name))
