"""What a spec may not say: each mistake is refused in one line, which names its place, what was got and wanted."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter, ValidationError

from evalflows.specs.columns import AnswerColumns, ExampleColumns
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.dataset import DatasetSpec
from evalflows.specs.errors import first_problem
from evalflows.specs.evaluator import EvaluatorSpec, TierSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.gate import GateSpec
from evalflows.specs.metric_names import MEASURES
from evalflows.specs.metrics import CompositeSpec, MetricSpec, ScoreConfigSpec
from evalflows.specs.target import TargetSpec
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.specs.watch import WatchSpec

EXPERIMENT = "name: demo, dataset: {path: x.jsonl}, targets: [{kind: chat}], evaluators: [exact_match]"
TWO = "[{kind: chat, name: a}, {kind: chat, name: b}]"
COMPARISON = "experiments: [old, new], evaluators: [pairwise_preference]"
TONE = "data_type: CATEGORICAL, categories: [warm, "
IN_STORE = "wanted only with path, function or rows; snapshots in the store have fixed fields"
TASK_RUNNERS = "'threads', 'processes', 'dask' or 'ray'"
ONE_SOURCE = "wanted just one of path, function, snapshot, rows, traces"
WINDOW = "wanted production:EVALUATION@24h"

REFUSED: list[tuple[Any, str, dict[str, str]]] = [
    (
        ExperimentSpec,
        EXPERIMENT,
        {
            "repetition: 3": "repetition: no such field, wanted one of: repetitions, name, ",
            "name: ''": "name: String should have at least 1 character, got ''",
            "name: 7": "name: got 7, wanted a text",
            "targets: []": "targets: List should have at least 1 item",
            "targets: [{kind: chatt}]": "targets.0: kind: got 'chatt', wanted one of: chat, python, http, recorded",
            "targets: [{kind: python}]": "targets.0.python.function: missing",
            "targets: [{kind: chat}, {kind: chat}]": "targets: two are called 'target', wanted unique names",
            "evaluators: [{name: x}]": "evaluators.0.use: missing",
            "evaluators: [{use: x, arg: 1}]": "evaluators.0.arg: no such field",
            "evaluators: [contains, {use: 'app:contains'}]": "evaluators: two are called 'contains', wanted unique",
            "evaluators: [contains, {use: x, name: contains}]": "evaluators: two are called 'contains', wanted unique",
            "connections: {x: {kind: endpoint}}": "connections.x.endpoint.base_url: missing",
            "compare: {evaluators: 'app:judge'}": "compare: got one target, wanted at least two",
            "metrics: {a: {pass_k: [2, 4]}}, repetitions: 3": "metrics: a: pass_k: got 4, with repetitions 3",
            "task_runner: spark": f"task_runner.kind: Input should be {TASK_RUNNERS}",
            "task_runner: {kind: threads, processes: 2}": "task_runner: task_runner: got threads with processes or",
            "task_runner: {kind: dask, processes: 2, address: 'tcp://h:1'}": "task_runner: task_runner: got processes",
            "task_runner: {kind: dask, processes: 0}": "task_runner.processes: Input should be greater than or equal",
            "gates: [{name: g, thresholds: {a: 1}}, {name: g, thresholds: {a: 1}}]": "gates: two are called 'g'",
            "gates: [{thresholds: {a: 1}, candidate: c}]": "gates: release: candidate: got 'c', wanted one of target",
            f"targets: {TWO}, gates: [{{superiority: [m], candidate: a}}]": "gates: release: the candidate is the base",
            **{f"dataset: {got}": f"dataset: got {got}, wanted a file's path, a snapshot's id, a dataset's name, or a"
               for got in ("12", "[1]", "''")},
            "dataset: {path: x.jsonl, turns: each}": "dataset.turns: Input should be 'whole' or 'next', got 'each'",
            **{
                f"composites: [{{name: {name}, weights: {{fair: 1}}}}]": f"evaluators: '{name}' is a built-in measure"
                for name in MEASURES
            },
        },
    ),
    (
        ComparisonSpec,
        COMPARISON,
        {
            "experiments: []": "experiments: ",
            "repetitions: 2": "repetitions: ",
            "dataset: x.jsonl": "dataset: ",
            "evaluators: ['app:judge', {use: 'app:judge'}]": "evaluators: two are called 'judge', wanted unique names",
            "evaluators: ['a:judge', {use: x, name: judge}]": "evaluators: two are called 'judge', wanted unique names",
        },
    ),
    (
        DatasetSpec,
        "",
        {
            "sample: 3": "got no source, wanted one of path, function, name, snapshot",
            "path: x, function: 'a:f'": f"got path and function, {ONE_SOURCE}",
            "snapshot: s, rows: []": f"got snapshot and rows, {ONE_SOURCE}",
            "rows: [], traces: {}": "got rows and traces",
            "traces: {order: worst}": "traces: order: got worst without a metric",
            "path: x, file: y": "file: no such field",
            "path: x, sample: 0": "sample: Input should be greater than or equal to 1, got 0",
            "path: x, splits: [1]": "splits.0: got 1, wanted a text",
            "path: x, expectations: [{kwargs: {}}]": "expectations.list[Expectation].0.type: missing",
            "path: x, expectations: [{type: x, severity: high}]": "expectations.list[Expectation].0.severity",
            "snapshot: s, columns: {inputs: q}": f"columns: {IN_STORE}",
            "name: faq, columns: {inputs: q}": f"columns: {IN_STORE}",
            "name: talks, turns: next": "turns: wanted only with path, function or rows; snapshots in the store",
        },
    ),
    (
        ExampleColumns,
        "",
        {
            "": "inputs: missing",
            "inputs: []": "inputs: Dictionary should have at least 1 item",
            "inputs: {q: 7}": "inputs.q: got 7, wanted a text",
            "inputs: [[question]]": "inputs: got [['question']], wanted",
            "inputs: [{question: q}]": "inputs: got [{'question': 'q'}], wanted",
            "inputs: q, outputs: a": "outputs: no such field",
        },
    ),
    (AnswerColumns, "", {"outputs: a, split: s": "split: no such field"}),
    (
        TargetSpec,
        "",
        {
            **{f"kind: http, url: '{url}'": f"http: url: got '{url}', wanted http://… or https://…"
               for url in ("", "localhost:8000", "ftp://x", "http://", "http:///path", "/answer", " http://x")},
            "kind: http, url: 'http://localhost:port/'": "http: url: ",
            "kind: http, url: 'http://[::1'": "http: url: ",
            "kind: recorded": "recorded: got no source, wanted one of path, column and experiment",
            "kind: recorded, path: x, column: y": "recorded: got path and column, wanted one of",
            "kind: recorded, column: x, experiment: y": "recorded: got column and experiment, wanted one of",
            "kind: recorded, column: x, columns: {outputs: a}": "recorded: columns: wanted only with path",
            "kind: recorded, experiment: x, columns: {outputs: a}": "recorded: columns: wanted only with path",
            "kind: conversation, target: {kind: python, function: 'a:b', answers_of: x}":
                "conversation: target: answers_of: wanted it omitted",
            **{f"kind: chat, extra: {{top_p: 1, {name}: null}}": f"chat: extra: got '{name}', wanted only parameters"
               for name in ("model", "messages", "temperature", "max_tokens", "seed", "tools", "schema",
                            "response_format", "repeat")},
        },
    ),
    (
        EvaluatorSpec,
        "",
        {
            "use: cascade": "tiers: got use: cascade without, wanted",
            "use: contains, tiers: [exact_match]": "tiers: got use: contains with tiers, wanted",
            "use: cascade, tiers: [contains], args: {key: a}": "tiers: got args beside tiers",
            "use: contains, decides: [1]": "decides: no such field",
            "use: contains, sample_rates: {high: 1}": "sample_rates: got no sample_by",
            "use: contains, sample_by: split, sample_rate: 0.5": "sample_by: got no sample_rates",
            "use: contains, timeout_s: 0": "timeout_s: Input should be greater than 0",
            "use: cascade, tiers: [{use: cascade, tiers: [contains]}]": "tiers.0.tiers: no such field",
            "use: cascade, tiers: [{use: contains, sample_rate: 0.5}]": "tiers.0.sample_rate: no such field, wanted ",
            **{f"use: x, sample_rate: {rate}": "sample_rate: " for rate in (0, -0.1, 1.01, "some", ".nan", ".inf")},
            **{f"use: x, sample_by: split, sample_rates: {{a: {rate}}}": "sample_rates.a: " for rate in (0, 1.01)},
        },
    ),
    (
        TierSpec,
        "use: contains",
        {
            "decides_from: 0.2, decides_to: 0.8": "decides_from: got 0.2 with decides_to 0.8, which is every score",
            "decides_from: 0.5, decides_to: 0.5": "decides_from: got 0.5 with decides_to 0.5, which is every score",
        },
    ),
    (
        MetricSpec,
        "",
        {f"range: [{low}, {high}]": "range: got ["
         for low, high in ((1, 0), (1, 1), (0, 0), (".nan", 1), (0, ".nan"), (0, -0.0))},
    ),
    (
        CompositeSpec,
        "name: quality, weights: {a: 1}",
        {
            "weights: {}": "weights: got neither, wanted weights or a panel",
            "weights: [1]": "weights.1.[key]: got 1, wanted a text",
            "weight: {a: 1}": "weight: no such field",
            "aggregation: minimum, function: 'm:f'": "aggregation: got minimum with a function",
            "missing: skip": "missing: Input should be 'fail', 'leave_out' or 'worst', got 'skip'",
            **{f"weights: {{a: 1, b: {bad}}}": f"weights: b: got {float(bad.strip('.'))}, wanted more than 0"
               for bad in ("0", "-1", ".nan", ".inf")},
            **{f"requirements: {{b: 1, a: {bad}}}": f"requirements: a: got {float(bad.strip('.'))}, wanted a number"
               for bad in (".nan", ".inf")},
        },
    ),
    (
        ScoreConfigSpec,
        "",
        {
            "min_value: 5, max_value: 1": "got 5.0 to 1.0, wanted two numbers, the lower one first",
            "max_value: .inf": "got None to inf, wanted two numbers, the lower one first",
            "data_type: BOOLEAN, min_value: 0": "min_value and max_value: got data_type BOOLEAN, wanted NUMERIC",
            "data_type: CATEGORICAL": "categories: got 0 with CATEGORICAL, wanted them for CATEGORICAL only",
            f"{TONE} {{label: warm}}]": "categories: got 'warm' twice",
            "minimum: 1": "minimum: no such field",
        },
    ),
    (
        GateSpec,
        "baseline: 'production:support@24h', non_inferiority: {correct: 0.05}",
        {
            **{f"baseline: '{text}'": f"got '{text}', {WINDOW}" for text in (
                "production:support", "production:@24h", "production:support@soon", "production:support@2026-11-01..",
                "production:support@2026-11-01..2026-11-02..2026-11-03")},
            "baseline: 'production:support@0h'": "got the window 0h, wanted one of at most 3660 days",
            "baseline: 'production:support@999999w'": "got the window 999999w, wanted one of at most 3660",
            "baseline: 'production:support@2026-11-08..2026-11-01'": "got 'production:support@2026-11-08..2026-11-01'",
            "batch: 50": "gate 'release': got batch with a window of production",
            "recalibrate: {sample: 100}": "gate 'release': got recalibrate with a window of production",
            "non_inferiority: {'correct@split=hard': 0.1}": "gate 'release': got 'correct@split=hard' with a window of",
        },
    ),
    (
        WatchSpec,
        "",
        {
            "threshold: a": "threshold of 'a': wanted one of minimum and maximum",
            "threshold: a, minimum: 0.1, maximum: 0.2": "threshold of 'a': wanted one of minimum and maximum",
            "failure_share: a, maximum: 1.5": "failure_share of 'a': got maximum 1.5, wanted 0 to below 1",
            "change: a, minimum: 0.5": "minimum: got 0.5 in a rule of kind 'change', wanted none",
            "fall: a, slices: [user]": "slices: got 'user', wanted one of tag, version, model, environment, or a path "
            "such as metadata.plan, or all",
            "fall: a, slices: [metadata.]": "slices: got 'metadata.', wanted one of tag",
            "fall: a, margin: -1": "margin: Input should be greater than or equal to 0",
            "metric: a": "kind: ",
        },
    ),
    (
        TraceEvaluationSpec,
        "name: production, evaluators: [exact_match]",
        {
            "evaluators: []": "evaluators: ",
            "colour: red": "colour: no such field",
            "evaluators: [contains, contains]": "evaluators: two are called 'contains', wanted unique names",
            "mapper: {answer: output}": "mapper: got 'answer', wanted any of input",
            "composites: [{name: exact_match, weights: {exact_match: 1}}]": "evaluators: two are called 'exact_match'",
            "watch: [exact_match, {change: exact_match, slices: [version]}]": "watch: two rules are called 'change",
            "scope: sessions, watch: [latency]": "watch: 'change latency': got scope 'sessions', wanted",
        },
    ),
]  # fmt: skip


def mistakes() -> Iterator[Any]:
    for model, fine, changes in REFUSED:
        for change, said in changes.items():
            yield pytest.param(model, fine, change, said, id=f"{getattr(model, '__name__', 'TargetSpec')}: {change}")


def refusal(model: Any, content: object) -> str:
    """The one line that something is refused with."""
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(model).validate_python(content)
    text = first_problem(caught.value, "it", model)
    assert "\n" not in text
    return text.removeprefix("it: ")


@pytest.mark.parametrize(("model", "fine", "change", "said"), [*mistakes()])
def test_a_mistake_is_refused_in_one_line_with_its_place(model: Any, fine: str, change: str, said: str) -> None:
    content = yaml.safe_load(f"{{{fine}}}") | yaml.safe_load(f"{{{change}}}")
    assert refusal(model, content).startswith(said)


def test_a_key_that_is_written_down_is_refused_and_not_told() -> None:
    """In a header by whatever name, beside a variable, and in an address."""
    secret = "sk-123456"
    for name in ("Authorization", "authorization", "Proxy-Authorization", "X-Api-Key", "api_key", "X-Auth-Token",
                 "Cookie", "X-Client-Secret", "APIKEY", "token"):  # fmt: skip
        for value in (secret, f"Bearer {secret}", f"$KEY {secret}", f"${{}}{secret}"):
            said = refusal(TargetSpec, {"kind": "http", "url": "http://a/", "headers": {"X-Version": "1", name: value}})
            assert said == f"http: headers: {name} holds a value, wanted ${{NAME}} of an environment variable"
    for url in ("https://me:hunter2@app.example/", "https://hunter2@app.example/", "https://a/?x=1&token=hunter2"):
        assert "hunter2" not in refusal(TargetSpec, {"kind": "http", "url": url})
