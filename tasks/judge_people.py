"""Weighing a judge against people: one check a judge, with all its figures."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from store.parquet import Store
from store.people import Judged, judged_and_labelled
from store.records import CheckRow, derived_id, to_json
from tasks.people_figures import beside, figures

ABOVE_CHANCE = 0.0
"""What alpha must be above, interval and all, for a judge to pass: agreement by chance."""


@task(cache_policy=NO_CACHE, persist_result=False)
def weigh_against_people(experiment: str, metric: str, people_metric: str, level: float) -> str:
    """Keep a check for every judge that gave a metric of an experiment, or of a comparison, made anew from the labels
    that are there. Returns the batch of the checks.

    Raises InputError for an experiment or a metric that there is not, and where there is no label.
    """
    store = Store()
    found = judged_and_labelled(store, experiment, metric, people_metric)
    batch = people_batch(found.subject_id, metric, people_metric)
    versions = found.judgements.evaluator_version.unique()
    store.publish("checks", batch, [_check(batch, found, str(version), level) for version in versions])
    return batch


def people_batch(subject_id: str, metric: str, people_metric: str) -> str:
    """The batch of checks in which the judges of one metric were held against people."""
    return derived_id("people", subject_id, metric, people_metric)


def _check(batch: str, found: Judged, version: str, level: float) -> CheckRow:
    judgements = found.judgements[found.judgements.evaluator_version == version]
    one = beside(judgements, found.labels, is_pairs=found.is_pairs)
    models = judgements.judge_model.dropna().unique()
    made = {
        "subject_id": found.subject_id,
        "name": found.name,
        "candidate": found.candidate,
        "people_metric": found.people_metric,
        "evaluator": str(judgements.evaluator.iloc[0]),
        "evaluator_version": version,
        "judge_model": str(models[0]) if len(models) == 1 else None,
        "n_missing": int(judgements.status.isin(["failed", "not_attempted"]).sum()),
        "n_left_out": int(found.labels.unit.nunique()) - len(one.people),
        **figures(one, level),
    }
    alpha = made["alpha"]
    passed = None if alpha["low"] is None else alpha["low"] > ABOVE_CHANCE
    return CheckRow(
        check_id=derived_id(batch, version),
        batch_id=batch,
        subject_kind="judge",
        subject_id=found.metric,
        name="people",
        passed=passed,
        severity="warning",
        n_checked=made["n_labelled"],
        observed=to_json(made),
        expected=to_json({"alpha_above": ABOVE_CHANCE}),
        message=_in_words(made),
    )


def _in_words(made: dict[str, object]) -> str:
    agreed, alpha = made.get("agreement"), made["alpha"]
    assert isinstance(alpha, dict)
    said = f"against people on {made['n_labelled']} of {made['n_judged']}"
    if isinstance(agreed, dict) and agreed["share"] is not None:
        said += f": agrees on {agreed['share']:.0%}"
    value = "not known" if alpha["alpha"] is None else f"{alpha['alpha']:.2f}"
    span = "" if alpha["low"] is None else f" [{alpha['low']:.2f}, {alpha['high']:.2f}]"
    return f"{said}, alpha {value}{span}"
