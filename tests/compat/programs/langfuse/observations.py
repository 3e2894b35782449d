# ruff: noqa: A002 Langfuse's names
"""Evaluate model calls of production, as in Langfuse from version 5 on: items are observations with text."""

import json

from evalflows.compat.langfuse import BatchEvaluationResumeToken, Evaluation, EvaluatorInputs, get_client

langfuse = get_client()

FILTER = json.dumps(
    [
        {"type": "arrayOptions", "column": "tags", "operator": "any of", "value": ["production"]},
        {"type": "string", "column": "type", "operator": "=", "value": "GENERATION"},
    ]
)


async def generation_mapper(*, item, **kwargs):
    answer = json.loads(item.output)
    return EvaluatorInputs(
        input=json.loads(item.input)["messages"][-1]["content"],
        output=answer["messages"][-1],
        metadata={"type": item.type, "trace": item.trace_id, "model": item.model},
    )


async def brevity(*, input, output, expected_output=None, metadata=None, **kwargs):
    return Evaluation(name="brevity", value=len(output["content"] or "") < 60, data_type="BOOLEAN")


def kind(*, input, output, expected_output=None, metadata=None, **kwargs):
    return [
        Evaluation(name="kind", value=metadata["type"], data_type="CATEGORICAL"),
        {"name": "question", "value": len(input), "comment": metadata["model"]},
    ]


def passed(*, input, output, expected_output, metadata, evaluations):
    is_brief = all(evaluation.value for evaluation in evaluations if evaluation.name == "brevity")
    return Evaluation(name="passed", value=is_brief, data_type="BOOLEAN")


if __name__ == "__main__":
    found = 0
    token = None
    while True:
        result = langfuse.run_batched_evaluation(
            mapper=generation_mapper,
            evaluators=[brevity, kind],
            composite_evaluator=passed,
            filter=FILTER,
            fields="core,basic,io,model",
            fetch_batch_size=4,
            max_items=8,
            max_retries=1,
            max_concurrency=5,
            metadata={"run": "nightly"},
            resume_from=token,
            verbose=False,
        )
        found += result.total_items_processed
        print(result.total_items_processed, result.completed, result.has_more_items)
        if result.resume_token is None:
            break
        token = BatchEvaluationResumeToken(**json.loads(json.dumps(vars(result.resume_token))))
    print(found, sorted(result.item_evaluations))
