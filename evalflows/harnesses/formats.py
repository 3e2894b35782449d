"""The formats of results: of harnesses that benchmark models (Inspect, lm-evaluation-harness, HELM, OpenAI evals), of
runners of tests, in which a test is an example (pytest, promptfoo, DeepEval), of platforms that export them (LangSmith,
Langfuse, Braintrust), and tables: rows with an id, and scores in columns (wide) or a row each (long)."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from math import isnan
from pathlib import Path
from typing import Any

from evalflows.harnesses.assembling import (
    COLUMNS,
    WORDS,
    NoResultsError,
    Row,
    Several,
    at,
    first,
    flattened,
    has,
    rows_in,
)
from evalflows.specs.errors import short
from evalflows.specs.escaping import joined
from evalflows.specs.grouping import grouped
from evalflows.store.file_formats import document_rows

_LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0, "yes": 1.0, "no": 0.0}  # as Inspect's own metrics read them
_SAMPLES = re.compile(r"samples_(.+?)(_\d{4}-\d\d-\d\dT[\d.:-]+)?\.jsonl")
"""How lm-eval names the samples of a task."""
_HELM_RUN = re.compile(r",?\bmodel=([^,]+)")  # in the name of a folder: mmlu:subject=anatomy,model=openai_gpt2
_PASSED = {"passed": True, "xpassed": True, "failed": False}  # pytest's other outcomes are missing
_REPEATED = re.compile(r"(.+\[.+(?=-)|.+(?=\[\d+-\d+\]))[-[](\d+)-(\d+)\]", re.DOTALL)
_EXIT_CODES = {2: "pytest was interrupted", 3: "pytest had an internal error"}
_NOT_GRADED = 2  # promptfoo's reason of a failure that no assertion found
_ASKING = ("user", "human", "system")  # roles in conversations that are no answers
_LABELS = ("CATEGORICAL", "TEXT", "CORRECTION")  # types of Langfuse's scores that are no numbers
METRICS, VALUES = ("metric", "metric_name"), ("value", "score")  # columns of the long form
_KNOWN = {"scores", "metadata", *(name for names in COLUMNS.values() for name in names)}
_NO_METRIC = re.compile(r"(.+[_.])?(ids?|index|idx|at|hash|seed|split|cluster|group|timestamp|line|row)")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?|true|false", re.IGNORECASE)
_OPENED = ("inputs", "outputs", "feedback_stats", "extra")  # JSON in LangSmith's bulk exports
_ALONE = re.compile(r"\[\s*([-+.\deE]+|true|false)\s*\]", re.IGNORECASE)
_SCORE = re.compile(r"(.+[_./ ])?(scores?|metrics?)([_./ ].+)?", re.IGNORECASE)
"""Columns that are scores by their names: a text in one is an error."""


class _Scores:
    """Scores by answers, which a file has as records of their own: none replaces another of the same name."""

    def __init__(self) -> None:
        self.answers: defaultdict[Any, defaultdict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))

    def add(self, answer: Any, name: str, value: Any) -> None:
        self.answers[answer][name].append(value)

    def of(self, answer: Any) -> dict[str, Any]:
        given: Mapping[str, list[Any]] = self.answers.get(answer, {})
        return {name: Several(values) if values[1:] else values[0] for name, values in given.items()}


def read_inspect(log: Any, source: str) -> Iterator[Row]:
    why = ": ".join(filter(None, (f"its status is {log['status']}", at(log, "error", "message"))))
    samples = [(sample, _inspect_scores(sample)) for sample in log.get("samples") or ()]
    by_metric = grouped((name, score) for _, scores in samples for name, score in scores.items() if score is not None)
    labels = [name for name, values in by_metric.items() if all(map(_is_label, values))]
    for sample, scores in samples:
        yield {
            **sample,
            "id": f"{log['eval']['task']}/{sample['id']}",
            "system": at(log, "eval", "model"),
            "output": at(sample, "output", "completion"),
            "scores": {name: score for name, score in scores.items() if name not in labels},
            "left_out": labels,
            "error": at(sample, "error", "message"),
            "unfinished": None if log["status"] == "success" else why,
        }


def _inspect_scores(sample: Row) -> dict[str, Any]:
    scores = {name: at(score, "value") for name, score in (sample.get("scores") or {}).items()}
    return {name: _LETTERS.get(str(value), value) for name, value in flattened(scores).items()}


def _is_label(value: Any) -> bool:
    return isinstance(value, str) and not _NUMBER.fullmatch(value.strip()) and value.strip().lower() not in WORDS


def read_lm_eval(content: Any, source: str) -> Iterator[Row]:
    if has(content, "results configs"):
        raise NoResultsError(f"{source}: got the means of lm-eval's tasks, wanted its samples_*.jsonl (--log_samples)")
    task = f"{named[1]}/" if (named := _SAMPLES.fullmatch(Path(source).name)) else ""
    for row in rows_in(content):
        numeric = [name for name, value in row.items() if isinstance(value, int | float) and name != "doc_id"]
        scores = {name: row.get(name) for name in row.get("metrics") or numeric}
        of_filter = f",{row['filter']}" if row.get("filter", "none") != "none" else ""
        lists = [name for name, score in scores.items() if isinstance(score, list)]
        yield {
            "id": f"{task}{row['doc_id']}",
            "inputs": row.get("doc"),
            "reference": row.get("target"),
            "output": row["filtered_resps"],
            "scores": {f"{name}{of_filter}": score for name, score in scores.items() if name not in lists},
            "metadata": row.get("doc"),
            "left_out": lists,
        }


def read_helm(content: Any, source: str) -> Iterator[Row]:
    """Yield instances with the statistics of their perturbations as metrics of their own, as HELM's tables have them:
    the perturbations of an instance are no examples."""
    run = Path(source).parent.name
    task, model = (_HELM_RUN.sub("", run), found[1]) if (found := _HELM_RUN.search(run)) else (None, None)
    given = _Scores()
    for row in rows_in(content):
        if isinstance(row["stats"], Mapping):
            raise NoResultsError(f"{source}: got HELM's display_predictions.json, wanted its per_instance_stats.json")
        perturbation = at(row, "perturbation", "name")
        for stat in row["stats"]:
            name = ",".join(filter(None, (stat["name"]["name"], stat["name"].get("sub_split"), perturbation)))
            given.add((row["instance_id"], row.get("train_trial_index")), name, stat["mean"] if stat["count"] else None)
    for instance, trial in given.answers:
        identity = "/".join(filter(None, (task, instance)))
        yield {
            "id": identity,
            "system": model,
            "trial": trial,
            "scores": given.of((instance, trial)),
            "metadata": {"instance_id": identity},
        }


def read_openai_evals(content: Any, source: str) -> Iterator[Row]:
    events = rows_in(content)
    is_whole = any("final_report" in event for event in events)
    for event in events:
        kind, data = event.get("type"), event.get("data") or {}
        scores = {"match": data.get("correct")} if kind == "match" else data if kind == "metrics" else {}
        if event.get("sample_id"):
            yield {
                "id": event["sample_id"],
                "system": ", ".join(at(events[0], "spec", "completion_fns") or ()),
                "inputs": data.get("prompt"),
                "reference": data.get("expected"),
                "output": data.get("sampled"),
                "scores": {name: value for name, value in scores.items() if not isinstance(value, str | list | dict)},
                "error": (data.get("message") or data.get("type") or kind) if kind == "error" else None,
                "unfinished": None if is_whole else "it has no final report",
            }


def read_junit(content: Any, source: str) -> Iterator[Row]:
    (root,) = content.values()
    cases = [*root.iter("testcase")]
    ids = _repetitions(["::".join(filter(None, (case.get("classname"), case.get("name")))) for case in cases])
    for case, (identity, repetition) in zip(cases, ids, strict=True):
        lack = next((each for each in case if each.tag in ("error", "skipped")), None)
        yield {
            "id": identity,
            "repetition": repetition,
            "scores": {"passed": case.find("failure") is None if lack is None else None},
            "metadata": {each.get("name", ""): each.get("value") for each in case.iter("property")},
            "error": None if lack is None else lack.get("message") or lack.tag,
        }


def read_pytest_json(report: Any, source: str) -> Iterator[Row]:
    ids = _repetitions([test["nodeid"] for test in report["tests"]])
    for test, (identity, repetition) in zip(report["tests"], ids, strict=True):
        passed = _PASSED.get(test["outcome"])
        crashes = filter(None, (at(test, stage, "crash", "message") for stage in ("setup", "call", "teardown")))
        error = next(crashes, test["outcome"]) if passed is None else None
        said = {"metadata": test.get("metadata"), "error": error, "unfinished": _EXIT_CODES.get(report["exitcode"])}
        yield {"id": identity, "repetition": repetition, "scores": {"passed": passed}, **said}


def _repetitions(names: Sequence[str]) -> list[tuple[str, int | None]]:
    """Return tests without the numbers that pytest-repeat adds to their names, and these numbers: `test_sum[x-1-3]` to
    `test_sum[x-3-3]` are three repetitions of `test_sum[x]`. Two parameters look the same unless all three are there.
    """
    found = [(name, _REPEATED.fullmatch(name)) for name in names]
    numbers = grouped(((match[1], match[3]), int(match[2])) for _, match in found if match)
    return [
        (f"{match[1]}]" if "[" in match[1] else match[1], int(match[2]))
        if match and len(of := numbers[match[1], match[3]]) > 1 and sorted(of) == [*range(1, int(match[3]) + 1)]
        else (name, None)
        for name, match in found
    ]


def read_promptfoo(content: Any, source: str) -> Iterator[Row]:
    results = content["results"] if has(content, "results") else content
    rows = rows_in(results["results"] if has(results, "results") else results)
    systems = [_provider_and_prompt(row) for row in rows]
    are_several = len({*systems}) > len({provider for provider, _ in systems})
    for row, (provider, prompt) in zip(rows, systems, strict=True):
        test = row.get("testCase") or {}
        given = row.get("vars") or test.get("vars") or {}
        inputs = {name: value for name, value in given.items() if not name.startswith("_")}
        was_graded = row["failureReason"] != _NOT_GRADED if "failureReason" in row else row.get("gradingResult")
        error = None if was_graded else row.get("error")
        asked = [each["metric"] for each in test.get("assert") or () if at(each, "metric")]
        scores = {"success": row["success"], "score": row.get("score"), **(row.get("namedScores") or {})}
        yield {
            "system": f"{provider}, {prompt}" if are_several else provider,
            "id": None if inputs else test.get("description") or row.get("testIdx"),
            "inputs": inputs or None,
            "output": at(row, "response", "output"),
            "scores": dict.fromkeys([*scores, *asked]) if error else scores,
            "metadata": {**inputs, **(test.get("metadata") or {})},
            "error": error,
        }


def _provider_and_prompt(row: Row) -> tuple[Any, str]:
    provider, prompt = row["provider"], row.get("prompt") or {}
    label = f"{joined(first(prompt, ('label', 'display')) or 'prompt')[:60]} #{row.get('promptIdx', 0)}"
    return first(provider, ("label", "id")) if isinstance(provider, Mapping) else provider, label


def read_deepeval(run: Any, source: str) -> Iterator[Row]:
    for case in [*(run.get("testCases") or ()), *(run.get("conversationalTestCases") or ())]:
        metrics = case.get("metricsData") or ()
        errors = {each["name"]: each["error"] for each in metrics if each.get("error")}
        scores = {each["name"]: None if each["name"] in errors else each.get("score") for each in metrics}
        yield {
            "inputs": first(case, ("input", "scenario")) or _asked(case.get("turns")),
            "reference": first(case, ("expectedOutput", "expectedOutcome")),
            "output": case.get("actualOutput"),
            "scores": {"success": None if errors else case.get("success"), **scores},
            "metadata": case.get("metadata"),
            "reasons": {"success": "; ".join(errors.values()), **errors} if errors else {},
        }


def _asked(turns: Any) -> Any:
    """Return a conversation without the answers, which are another system's in another file."""
    is_whole = isinstance(turns, list) and all(isinstance(turn, Mapping) for turn in turns)
    return [turn for turn in turns if first(turn, ("role", "type")) in _ASKING] if is_whole else turns


def read_ragas(content: Any, source: str) -> Iterator[Row]:
    for row in read_table(content, source):
        yield {**row, "user_input": _asked(row.get("user_input"))}


def read_langsmith(content: Any, source: str) -> Iterator[Row]:
    """Yield the rows of an experiment as a data frame, or its runs and their feedback, which may follow them."""
    rows, given = rows_in(content), _Scores()
    for row in rows:
        if "key" in row and row.get("run_id"):
            given.add(str(row["run_id"]), row["key"], row.get("score"))
    for row in rows:
        if has(content, "example_id execution_time"):
            parts = {name: _under(name, row) for name in ("inputs", "outputs", "reference")}
            yield {"id": row["example_id"], "error": row.get("error"), **parts, "scores": _under("feedback", row)}
        elif "run_type" in row and not row.get("parent_run_id") and not row.get("parent_run_ids"):
            row = {**row, **{name: _opened(row.get(name)) for name in _OPENED}}
            stats = {key: at(each, "avg") for key, each in (row["feedback_stats"] or {}).items()}
            yield {
                **row,
                "id": row.get("reference_example_id"),
                "system": row.get("session_id"),
                "scores": {**stats, **given.of(str(row["id"]))},
                "metadata": at(row, "extra", "metadata"),
            }


def _opened(value: Any) -> Any:
    """Return a value that a Parquet file holds as JSON."""
    return json.loads(value) if isinstance(value, str) and value.startswith("{") else value


def _under(name: str, row: Row) -> dict[str, Any]:
    return {column.partition(".")[2]: value for column, value in row.items() if column.startswith(f"{name}.")}


def read_langfuse(content: Any, source: str) -> Iterator[Row]:
    """Yield traces with their scores, which the traces hold or which are records of their own; of scores alone, the
    traces that they are of. Those of people are metrics of their own, scores of sessions and of datasets are left out.
    """
    rows, given, meta = rows_in(at(content, "data") or content), _Scores(), at(content, "meta")
    for of, score in chain(
        ((None, row) for row in rows), ((row, one) for row in rows for one in row.get("scores") or ())
    ):
        trace = first(score, ("traceId", "trace_id")) or at(of, "id")
        if "value" in score and trace and first(score, ("dataType", "data_type")) not in _LABELS:
            is_of_people = score.get("source") == "ANNOTATION"
            given.add(str(trace), f"{score['name']},annotation" if is_of_people else score["name"], score["value"])
    traces = [row for row in rows if "value" not in row]
    page = (at(meta, "page") or 1, at(meta, "totalPages") or 1)
    for row in traces:
        yield {
            **row,
            "id": at(row, "metadata", "dataset_item_id"),
            "scores": given.of(str(row["id"])),
            "of_pages": page,
        }
    if not traces:
        yield from ({"id": trace, "scores": given.of(trace), "of_pages": page} for trace in given.answers)


def read_braintrust(content: Any, source: str) -> Iterator[Row]:
    """Yield the rows of an experiment with the scores of the spans below them. Ids of rows differ by experiment."""
    rows, given = rows_in(content), _Scores()
    for row in rows:
        for name, value in (row.get("scores") or {}).items():
            given.add(row["root_span_id"], name, value)
    for row in rows:
        if not row.get("span_parents"):
            system = first(row, ("experiment_name", "experiment_id"))
            yield {**row, "id": at(row, "origin", "id"), "system": system, "scores": given.of(row["root_span_id"])}


def read_table(content: Any, source: str) -> Iterator[Row]:
    """Yield rows with their scores, also those that a JSON object holds. Raise NoResultsError without ids or scores."""
    rows = rows_in([*document_rows(content, source)] if isinstance(content, Mapping) else content)
    rows = [
        {name: _alone(value) if isinstance(value, str) and value[:1] == "[" else value for name, value in row.items()}
        for row in rows
    ]
    columns = [*dict.fromkeys(chain.from_iterable(rows))]
    got = f"{source}: got columns {short(', '.join(columns))}"
    if not {*COLUMNS["id"], *COLUMNS["inputs"]}.intersection(columns):
        raise NoResultsError(f"{got}, wanted an id: {', '.join(COLUMNS['id'])}")
    is_long = not {*METRICS}.isdisjoint(columns) and not {*VALUES}.isdisjoint(columns)
    errors = [] if is_long else [name for name in COLUMNS["error"] if name in columns and _are_sizes(name, rows)]
    metrics = [] if is_long else [*_metrics(rows, columns), *errors]
    if not is_long and not metrics and "scores" not in columns:
        raise NoResultsError(f"{got}, wanted scores, as numbers or true and false")
    known = {*_KNOWN, *METRICS, *VALUES} if is_long else _KNOWN
    known = known - {*COLUMNS["id"][1:]}  # others than `id` can be clusters
    for row in rows:
        listed, metadata = ({} if row.get(name) is None else row[name] for name in ("scores", "metadata"))
        scores = dict(listed) if isinstance(listed, Mapping) else {"scores": listed}
        scores |= {name: row.get(name) for name in metrics}
        scores |= {str(first(row, METRICS)): first(row, VALUES)} if is_long else {}
        fields = dict(metadata) if isinstance(metadata, Mapping) else {"metadata": metadata}
        fields |= {name: value for name, value in row.items() if name not in known}
        nothing = dict.fromkeys((*errors, "unfinished", "of_pages", "left_out"))
        yield {**row, **nothing, "scores": scores, "metadata": fields}


def _alone(text: str) -> str:
    """Return a number that is alone in a list, as Langfuse writes scores into cells; another text as it is."""
    found = _ALONE.fullmatch(text)
    return text if found is None else found[1]


def _metrics(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    """Return the columns of scores: those named so, and others of numbers, true and false."""
    is_typed = any(issubclass(kind, float | int) for kind in {kind for row in rows for kind in map(type, row.values())})
    kinds = (float, int) if is_typed else str
    candidates = [name for name in columns if name not in _KNOWN and not _NO_METRIC.fullmatch(name.lower())]
    return [name for name in candidates if _SCORE.fullmatch(name) or _are_numbers(name, rows, kinds)]


def _are_sizes(name: str, rows: Sequence[Row]) -> bool:
    """Return whether a column named after errors has their sizes or counts instead: numbers, but true and false."""
    values = {str(row.get(name)).strip().lower() for row in rows} - {"true", "false"}
    return any(map(_NUMBER.fullmatch, values)) and _are_numbers(name, rows, (float, int, str))


def _are_numbers(name: str, rows: Sequence[Row], kinds: Any) -> bool:
    """Return whether at least half of a column are numbers, true and false, so that a text in it is an error.

    In CSV, where nothing else is a number, they are texts.
    """
    n_cells = n_numbers = 0
    for row in rows:
        if (value := row.get(name)) is None:
            continue
        text = str(value).strip()
        if _NUMBER.fullmatch(text):
            n_cells, n_numbers = n_cells + 1, n_numbers + isinstance(value, kinds)
        else:
            n_cells += not isnan(WORDS.get(text.lower(), 0))
    return 0 < n_cells <= 2 * n_numbers
