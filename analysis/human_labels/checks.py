"""Checks of a judge against human labels."""

from evalflows.analysis.human_labels.judge_agreement import beside, figures
from evalflows.store.queries.human_labels import Judged
from evalflows.store.records import CheckRow, derived_id, to_json

ABOVE_CHANCE = 0.0
"""Alpha at chance agreement: a judge passes if the interval of its alpha lies above."""


def people_batch(subject_id: str, metric: str, people_metric: str) -> str:
    """The batch id of the checks of one metric's judges against human labels."""
    return derived_id("people", subject_id, metric, people_metric)


def label_check(batch: str, found: Judged, version: str, confidence_level: float) -> CheckRow:
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
        **figures(one, confidence_level),
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
