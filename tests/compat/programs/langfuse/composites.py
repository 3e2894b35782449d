# ruff: noqa: A002 Langfuse's names
"""Production without a mapper, combined by several composites; scores by item, and errors by type."""

from evalflows.compat.langfuse import Evaluation, get_client

langfuse = get_client()


def accuracy(*, input, output, expected_output=None, metadata=None, **kwargs):
    return Evaluation(name="accuracy", value=1.0 if "free" in output["text"] else 0.0)


def length(*, input, output, **kwargs):
    if "17" in input:
        raise LookupError("no such berth")
    return Evaluation(name="length", value=min(1.0, 20 / len(output["text"])))


def strict(*, input, output, expected_output, metadata, evaluations):
    return Evaluation(name="strict", value=min(evaluation.value for evaluation in evaluations))


if __name__ == "__main__":
    result = langfuse.run_batched_evaluation(
        scope="traces",
        filter='{"tags": ["production"], "name": "user-query"}',
        evaluators=[accuracy, length],
        composite_evaluators=[strict, {"name": "weighed", "weights": {"accuracy": 0.7, "length": 0.3}}],
        max_items=20,
    )
    print(result.total_items_processed, result.error_summary)
    for item_id, evaluations in sorted(result.item_evaluations.items())[:2]:
        print(item_id, {evaluation.name: round(evaluation.value, 3) for evaluation in evaluations})
        print(evaluations["accuracy"].value)
