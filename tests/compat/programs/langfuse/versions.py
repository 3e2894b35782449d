# ruff: noqa: A002 Langfuse's names
"""A dataset that changes between two runs, as one reads and runs it by its version."""

from datetime import UTC, datetime

from evalflows.compat.langfuse import Evaluation, get_client

langfuse = get_client()


def shout(*, item, **kwargs):
    return item.input["text"].upper()


def same(*, input, output, expected_output, metadata, **kwargs):
    return Evaluation(name="same", value=float(output == expected_output), comment=(metadata or {}).get("why"))


def rate(*, item_results, **kwargs):
    values = [one.evaluations[0].value for one in item_results]
    return Evaluation(name="rate", value=sum(values) / len(values))


if __name__ == "__main__":
    langfuse.create_dataset(name="shouts", description="What is shouted", metadata={"team": "harbour"})
    for number, text in enumerate(("ahoy", "land")):
        langfuse.create_dataset_item(
            dataset_name="shouts", id=f"s{number}", input={"text": text}, expected_output=text.upper()
        )
    first = langfuse.get_dataset("shouts")
    before = datetime.now(UTC)
    langfuse.create_dataset_item(
        dataset_name="shouts", id="s1", input={"text": "land"}, expected_output="Land!", metadata={"why": "new"}
    )
    langfuse.create_dataset_item(dataset_name="shouts", id="s2", input={"text": "sail"}, expected_output="SAIL")
    for name, dataset in (
        ("then", langfuse.get_dataset("shouts", version=before)),
        ("now", langfuse.get_dataset("shouts")),
    ):
        result = dataset.run_experiment(name=name, task=shout, evaluators=[same], run_evaluators=[rate])
        print(name, len(dataset.items), result.run_evaluations[0].value)
    print(len(first.items), [item.id for item in langfuse.get_dataset("shouts").items])
