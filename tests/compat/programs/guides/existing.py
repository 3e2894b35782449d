"""Evaluate an existing experiment."""

from evalflows.compat.langsmith import Client, evaluate
from evalflows.compat.langsmith.evaluation import evaluate_existing

client = Client()


def forecast(inputs: dict) -> dict:
    return {"wind": "south-west" if inputs["glass"] == "falling" else "north"}


def always_half(inputs: dict, outputs: dict) -> float:
    return 0.5


def agrees(outputs: dict, reference_outputs: dict) -> bool:
    return outputs["wind"] == reference_outputs["wind"]


def share_right(outputs: list[dict], reference_outputs: list[dict]) -> dict:
    right = sum(ours["wind"] == theirs["wind"] for ours, theirs in zip(outputs, reference_outputs, strict=True))
    return {"key": "share_right", "score": right / len(outputs)}


if __name__ == "__main__":
    dataset = client.create_dataset("Weather glass")
    client.create_examples(
        inputs=[{"glass": "falling"}, {"glass": "rising"}, {"glass": "steady"}],
        outputs=[{"wind": "south-west"}, {"wind": "north"}, {"wind": "east"}],
        dataset_id=dataset.id,
    )
    results = evaluate(forecast, data="Weather glass", experiment_prefix="glass")

    # Later, and perhaps elsewhere.
    experiment = next(client.list_projects(reference_dataset_name="Weather glass")).name
    later = evaluate_existing(experiment, evaluators=[always_half], metadata={"judges": "first"})
    project = client.read_project(project_name=results.experiment_name)
    again = evaluate(project, evaluators=[agrees], summary_evaluators=[share_right])
    for row in again:
        print(row["run"].outputs["wind"], row["evaluation_results"]["results"][0].score)
    print(experiment, later.experiment_name, again.experiment_name, sep="\n")
