"""Summary evaluators: precision, recall and F1 of a classifier."""

from evalflows.compat.langsmith import Client, evaluate
from evalflows.compat.langsmith.schemas import Example, Run

client = Client()


def is_distress(inputs: dict) -> dict:
    signals = ("mayday", "sos", "help")
    return {"class": "distress" if any(signal in inputs["signal"].lower() for signal in signals) else "routine"}


def correct(outputs: dict, reference_outputs: dict) -> bool:
    return outputs["class"] == reference_outputs["label"]


def counts(outputs: list[dict], reference_outputs: list[dict]) -> tuple[int, int, int]:
    pairs = [
        (o["class"] == "distress", r["label"] == "distress") for o, r in zip(outputs, reference_outputs, strict=True)
    ]
    return sum(a and b for a, b in pairs), sum(a and not b for a, b in pairs), sum(b and not a for a, b in pairs)


def f1_score_summary_evaluator(outputs: list[dict], reference_outputs: list[dict]) -> dict:
    true_positives, false_positives, false_negatives = counts(outputs, reference_outputs)
    if true_positives == 0:
        return {"key": "f1_score", "score": 0.0}
    precision = true_positives / (true_positives + false_positives)
    recall = true_positives / (true_positives + false_negatives)
    return {"key": "f1_score", "score": 2 * precision * recall / (precision + recall)}


def pass_50(runs: list[Run], examples: list[Example]) -> dict:
    """Whether at least half of the answers are right."""
    right = sum(run.outputs["class"] == example.outputs["label"] for run, example in zip(runs, examples, strict=True))
    return {"key": "pass", "score": right / len(runs) > 0.5}


if __name__ == "__main__":
    dataset = client.create_dataset(dataset_name="Radio signals")
    signals = [
        ("Mayday, we take water", "distress"),
        ("Can anyone help with the crossword?", "routine"),
        ("Fire in the engine room", "distress"),
        ("SOS, rudder gone", "distress"),
        ("Two lobsters ashore", "routine"),
        ("Request a pilot at six", "routine"),
    ]
    client.create_examples(
        dataset_id=dataset.id,
        examples=[{"inputs": {"signal": text}, "outputs": {"label": label}} for text, label in signals],
    )
    results = evaluate(
        is_distress,
        data="Radio signals",
        evaluators=[correct],
        summary_evaluators=[f1_score_summary_evaluator, pass_50],
        experiment_prefix="rules",
    )
    stats = client.read_project(project_name=results.experiment_name, include_stats=True).session_feedback_stats
    print(results.experiment_name, round(stats["f1_score"]["avg"], 3), stats["pass"]["avg"])
