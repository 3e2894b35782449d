"""Checks of a judge against human labels."""

from typing import Any

from evalflows.analysis.human_labels.judge_agreement import agreement_figures, join_labels
from evalflows.store.queries.human_labels import Judged
from evalflows.store.records import CheckRow, derived_id, to_json

ABOVE_CHANCE = 0.0
"""Krippendorff's alpha at chance agreement: a judge passes if the interval of its alpha lies above it."""


def people_batch(subject_id: str, metric: str, people_metric: str) -> str:
    """The batch id of the checks of one metric's judges against human labels."""
    return derived_id("people", subject_id, metric, people_metric)


def label_check(batch: str, judged: Judged, version: str, confidence_level: float) -> CheckRow:
    """Check one version of a judge against human labels; neither passed nor failed without an interval of alpha."""
    observed = _observed(judged, version, confidence_level)
    alpha = observed["alpha"]
    passed = None if alpha["low"] is None else alpha["low"] > ABOVE_CHANCE
    return CheckRow(
        check_id=derived_id(batch, version),
        batch_id=batch,
        subject_kind="judge",
        subject_id=judged.metric,
        name="people",
        passed=passed,
        severity="warning",
        n_checked=observed["n_labelled"],
        observed=to_json(observed),
        expected=to_json({"alpha_above": ABOVE_CHANCE}),
        message=_message(observed),
    )


def _observed(judged: Judged, version: str, confidence_level: float) -> dict[str, Any]:
    judgements = judged.judgements[judged.judgements.evaluator_version == version]
    joined = join_labels(judgements, judged.labels, is_pairs=judged.is_pairs)
    models = judgements.judge_model.dropna().unique()
    return {
        "subject_id": judged.subject_id,
        "name": judged.name,
        "candidate": judged.candidate,
        "people_metric": judged.people_metric,
        "evaluator": str(judgements.evaluator.iloc[0]),
        "evaluator_version": version,
        "judge_model": str(models[0]) if len(models) == 1 else None,
        "n_missing": int(judgements.status.isin(["failed", "not_attempted"]).sum()),
        "n_left_out": int(judged.labels.unit.nunique()) - len(joined.people),
        **agreement_figures(joined, confidence_level),
    }


def _message(observed: dict[str, Any]) -> str:
    agreement, alpha = observed.get("agreement"), observed["alpha"]
    text = f"compared with human labels on {observed['n_labelled']} of {observed['n_judged']}"
    if agreement and agreement["share"] is not None:
        text += f": agrees on {agreement['share']:.0%}"
    value = "unknown" if alpha["alpha"] is None else f"{alpha['alpha']:.2f}"
    interval = "" if alpha["low"] is None else f" [{alpha['low']:.2f}, {alpha['high']:.2f}]"
    return f"{text}, alpha {value}{interval}"
