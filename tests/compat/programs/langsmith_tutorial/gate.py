from experiments import client, concision, correctness, dataset_name, ls_target

from evalflows.compat.langsmith import evaluate


def test_length_score() -> None:
    """At least four answers in five must be concise."""
    experiment_results = evaluate(
        ls_target,
        data=dataset_name,
        evaluators=[concision, correctness],
    )
    feedback = client.list_feedback(
        run_ids=[r.id for r in client.list_runs(project_name=experiment_results.experiment_name)],
        feedback_key="concision",
    )
    scores = [f.score for f in feedback]
    assert sum(scores) / len(scores) >= 0.8, "Aggregate score should be at least .8"
