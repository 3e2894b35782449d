"""Feedback in OpenTelemetry's data is of what it points at, never of its carrier; a person's is a label."""

from typing import Any

import pytest
from catalog_rows import rows
from instrumented import exporting
from opentelemetry.trace import Link, SpanContext, TraceFlags
from otlp_requests import SPAN, START, TRACE, logs, record, span, traces

from evalflows.store.observations import write_observations
from evalflows.store.store import Store
from evalflows.telemetry.feedback import Telemetry
from evalflows.telemetry.otlp import rows_of_logs, rows_of_traces

RESULT = "gen_ai.evaluation.result"
ROOT, OTHER = "aa" * 8, "1af7651916cd43dd8448eb211c80319c"

Subject = tuple[str, str]


def result(**fields: Any) -> dict[str, Any]:
    names = {"name": "name", "value": "score.value", "label": "score.label", "why": "explanation"}
    return {f"gen_ai.evaluation.{names[name]}": value for name, value in ({"name": "good"} | fields).items()}


def subjects(parsed: Telemetry) -> list[Subject]:
    return [(row.subject_kind, row.subject_id) for row in (*parsed.scores, *parsed.labels)]


def test_an_event_of_a_span_is_about_the_span() -> None:
    root = span(events={RESULT: result(value=0.5, why="half", label="fair")})
    below = span(parent_id=ROOT, events={RESULT: result(value=1)})
    parsed = rows_of_traces(traces(root, below))
    assert subjects(parsed) == [("trace", TRACE), ("observation", f"{TRACE}/{SPAN}")]
    first = parsed.scores[0]
    assert (first.metric, first.value, first.label, first.data_type) == ("good", 0.5, "fair", "NUMERIC")
    assert (first.comment, first.status, first.evaluator) == ("half", "scored", "a library")
    assert first.experiment_id == "feedback-2026-01-01"
    assert len(parsed.observations) == 2


def test_a_span_with_links_is_about_what_it_links_to() -> None:
    carrier = span(events={RESULT: result(value=1)})
    carrier["links"] = [
        {"trace_id": bytes.fromhex(OTHER), "span_id": bytes.fromhex(SPAN)},
        {"trace_id": bytes.fromhex(OTHER), "span_id": bytes(8)},
    ]
    assert subjects(rows_of_traces(traces(carrier))) == [("observation", f"{OTHER}/{SPAN}"), ("trace", OTHER)]


def test_a_log_record_is_about_its_span_or_its_trace() -> None:
    parsed = rows_of_logs(
        logs(record(RESULT, attributes=result(value=1)), record(RESULT, attributes=result(), span_id=""))
    )
    assert subjects(parsed) == [("observation", f"{TRACE}/{SPAN}"), ("trace", TRACE)]
    assert (parsed.observations, parsed.ignored) == ([], 0)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"value": 0.25}, (0.25, None, "NUMERIC", "scored")),
        ({"value": 1}, (1.0, None, "NUMERIC", "scored")),
        ({"value": True}, (1.0, None, "BOOLEAN", "scored")),
        ({"label": "kind"}, (None, "kind", "CATEGORICAL", "scored")),
        ({"value": float("nan")}, (None, None, None, "failed")),
        ({"value": float("inf"), "label": "x"}, (None, "x", "CATEGORICAL", "scored")),
        ({"why": "no idea"}, (None, None, None, "not_applicable")),
    ],
)
def test_values_are_kept_as_what_they_are(fields: dict[str, Any], expected: tuple[Any, ...]) -> None:
    (score,) = rows_of_logs(logs(record(RESULT, attributes=result(**fields)))).scores
    assert (score.value, score.label, score.data_type, score.status) == expected


def test_a_result_that_arrives_twice_or_in_both_forms_is_one() -> None:
    first, second, later = (
        rows_of_logs(logs(record(RESULT, attributes=result(value=value), at=at))).scores[0].judgement_id
        for value, at in ((1, START), (1, START), (1, START + 10**9))
    )
    assert first == second != later
    attributes = annotated(identifier="v1") | annotated(form="evaluation", identifier="v1")
    assert len(rows_of_traces(traces(span(attributes=attributes))).scores) == 1


# OpenInference, by its package


def annotated(scope: Any = "span", form: str = "annotation", **fields: Any) -> dict[str, Any]:
    from openinference.instrumentation import Annotation, get_annotation_attributes, get_evaluation_attributes

    one = Annotation(**{"name": "good", "score": 0.5} | fields)
    if form == "annotation":
        return dict(get_annotation_attributes(annotations=[one], scope=scope))
    return dict(get_evaluation_attributes(evaluations=[one], scope=scope))


@pytest.mark.parametrize("form", ["annotation", "evaluation"])
def test_an_annotation_of_openinference_is_of_its_scope(form: str) -> None:
    session = {"session.id": "s1"}
    attributes = [annotated(scope, form) for scope in ("span", "trace", "session")]
    parsed = rows_of_traces(traces(*(span(parent_id=ROOT, attributes=one | session) for one in attributes)))
    assert subjects(parsed) == [("observation", f"{TRACE}/{SPAN}"), ("trace", TRACE), ("session", "s1")]


def test_an_annotation_by_a_person_is_a_label() -> None:
    attributes = annotated(
        label="fine", explanation="I say so", annotator_kind="HUMAN", identifier="anna", metadata={"form": 2}
    )
    parsed = rows_of_traces(traces(span(attributes=attributes)))
    (label,) = parsed.labels
    assert (parsed.scores, label.subject_kind, label.subject_id) == ([], "trace", TRACE)
    assert (label.metric, label.value, label.label, label.labeller) == ("good", 0.5, "fine", "anna")
    assert (label.comment, label.source, label.metadata) == ("I say so", "otlp", '{"form":2}')
    assert label.batch_id == "feedback-2026-01-01"


def test_an_annotation_in_a_trace_of_its_own_is_about_the_linked_span() -> None:
    with exporting() as exported:
        target = SpanContext(int(OTHER, 16), int(SPAN, 16), is_remote=True, trace_flags=TraceFlags(1))
        tracer = exported.tracer_provider.get_tracer("app")
        with tracer.start_as_current_span("judge", links=[Link(target)]) as carrier:
            carrier.set_attributes(annotated(annotator_kind="LLM"))
        parsed = exported.parsed()
    assert subjects(parsed) == [("observation", f"{OTHER}/{SPAN}")]


# pydantic-evals


def test_online_evaluations_of_pydantic_evals_are_scores_of_the_span(monkeypatch: pytest.MonkeyPatch) -> None:
    from pydantic_evals import _otel_emit
    from pydantic_evals.evaluators import EvaluationResult, EvaluatorFailure
    from pydantic_evals.evaluators.spec import EvaluatorSpec

    source = EvaluatorSpec(name="Judge", arguments=None)
    done = [
        EvaluationResult(name=name, value=value, reason="so", source=source, evaluator_version="2")
        for name, value in (("polite", True), ("quality", 0.5), ("tone", "kind"))
    ]
    failed = EvaluatorFailure(name="broken", error_message="no key", error_stacktrace="", source=source)
    with exporting() as exported:
        monkeypatch.setattr(_otel_emit, "_logger", exported.logger_provider.get_logger("pydantic-evals"))
        with exported.tracer_provider.get_tracer("app").start_as_current_span("answer") as current:
            _otel_emit.emit_otel_events(results=done, failures=[failed], target="answer")
        span_id = f"{current.get_span_context().span_id:016x}"
        parsed = exported.parsed()
    assert {row.subject_id.partition("/")[2] for row in parsed.scores} == {span_id}
    found = {row.metric: (row.value, row.label, row.status, row.evaluator_version) for row in parsed.scores}
    assert found == {
        "polite": (1.0, "pass", "scored", "2"),
        "quality": (0.5, None, "scored", "2"),
        "tone": (None, "kind", "scored", "2"),
        "broken": (None, None, "failed", "otlp"),
    }


# in the store


def test_feedback_is_in_the_views_with_the_fields_of_its_trace(store: Store) -> None:
    person = {"annotator_kind": "HUMAN"}
    event = {RESULT: result(value=0.5)}
    parsed = rows_of_traces(traces(span("answer", attributes={"tag.tags": ["production"]}, events=event)))
    said = rows_of_logs(logs(record(RESULT, attributes=result(label="bad") | person, at=START + 86_400 * 10**9)))
    for _ in range(2):
        write_observations(store, parsed.observations, scores=parsed.scores, labels=said.labels)
    assert rows("select metric, value, trace_id, name, tags, evaluation_day from trace_scores") == [
        ("good", 0.5, TRACE, "answer", ["production"], "feedback-2026-01-01")
    ]
    query = "select metric, label, trace_id, name, tags, labelled_at::date::varchar from trace_labels"
    assert rows(query) == [("good", "bad", TRACE, "answer", ["production"], "2026-01-02")]


def test_an_evaluator_s_span_is_about_its_parent() -> None:
    kind = {"openinference.span.kind": "EVALUATOR"}
    judge = span(span_id="bb" * 8, parent_id=SPAN, attributes=kind, events={RESULT: result(value=1)})
    parsed = rows_of_traces(traces(span(parent_id=ROOT), judge))
    assert subjects(parsed) == [("observation", f"{TRACE}/{SPAN}")]
