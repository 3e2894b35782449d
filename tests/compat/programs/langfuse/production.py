# ruff: noqa: A002 Langfuse's names
"""Evaluate the answers of an assistant in production: their length, correctness and use of tools."""

from evalflows.compat.langfuse import Evaluation, EvaluatorInputs, Langfuse

langfuse = Langfuse()

WEIGHTS = {"correctness": 0.5, "length": 0.2, "tool_use": 0.3}


def trace_mapper(trace):
    return EvaluatorInputs(
        input=trace.input,
        output=trace.output,
        expected_output=trace.metadata.get("expected"),
        metadata={"user": trace.user_id, "needs_tool": trace.metadata.get("needs_tool")},
    )


def length(*, input, output, expected_output, metadata, **kwargs):
    words = len(output.text.split())
    return Evaluation(name="length", value=1.0 if words <= 12 else 0.5, comment=f"{words} words")


def correctness(*, input, output, expected_output, metadata, **kwargs):
    is_correct = expected_output is not None and expected_output.lower() in output["text"].lower()
    return Evaluation(name="correctness", value=1.0 if is_correct else 0.0, metadata={"user": metadata["user"]})


def tool_use(*, input, output, expected_output, metadata, **kwargs):
    called = [call.name for call in output.tool_calls]
    assert called == [call["name"] for call in output["tool_calls"]]
    is_right = called == ([metadata["needs_tool"]] if metadata["needs_tool"] else [])
    return Evaluation(name="tool_use", value=float(is_right), comment=", ".join(called) or "no tool")


def quality(*, input, output, expected_output, metadata, evaluations):
    total = sum(evaluation.value * WEIGHTS[evaluation.name] for evaluation in evaluations)
    return Evaluation(name="quality", value=total, comment=f"{len(output.tool_calls)} calls")


if __name__ == "__main__":
    result = langfuse.run_batched_evaluation(
        scope="traces",
        mapper=trace_mapper,
        filter='{"tags": ["production"], "name": "user-query"}',
        evaluators=[length, correctness, tool_use],
        composite_evaluator=quality,
        max_items=1000,
        max_concurrency=50,
        metadata={"release": "1.5"},
    )
    print(f"items: {result.total_items_processed} of {result.total_items_fetched}, failed: {result.total_items_failed}")
    print(f"scores: {result.total_scores_created}, composite: {result.total_composite_scores_created}")
    for stats in result.evaluator_stats:
        print(f"{stats.name}: {stats.successful_runs} of {stats.total_runs}")
    values = [
        evaluation.value
        for evaluations in result.item_evaluations.values()
        for evaluation in evaluations
        if evaluation.name == "quality"
    ]
    print(f"quality: {sum(values) / len(values):.3f} of {len(values)}")
    print(f"errors: {result.error_summary}")
    print(f"more: {result.has_more_items}")
    if result.duration_seconds > 0:
        print("done")
