"""A judge against the human labels of now: the report that `labels agreement` stores, computed without storing it."""

from evalflows.analysis.human_labels.checks import label_check, people_batch
from evalflows.reports.judge import JudgeReport
from evalflows.reports.judge_records import LabelledSubject
from evalflows.store.parquet import Store
from evalflows.store.queries.human_labels import judged_in
from evalflows.store.records import from_json


def current_report(store: Store, labelled: LabelledSubject, confidence_level: float = 0.95) -> JudgeReport:
    """Return the report of one version of a judge in one experiment or comparison.

    Raise InputError if one side has numbers and the other labels.
    """
    names = labelled.subject_id, labelled.metric, labelled.people_metric
    judged = judged_in(store, names[0], labelled.kind == "pair", *names[1:])
    check = label_check(people_batch(*names), judged, labelled.evaluator_version, confidence_level)
    return JudgeReport(metric=check.subject_id, passed=check.passed, observed=from_json(check.observed))
