"""Judges against people: the agreement of a judge with human labels, its error, the mean corrected for that error, and
the runs to label next; and judges ranked by that agreement.

What several people said of an item counts once: the majority, or the mean of numbers; an item on which they are evenly
split counts nowhere. Where people labelled a random sample, only that counts. The mart `judge_quality` does the same.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal

import numpy as np
import pandas as pd

from evalflows.specs.errors import InputError
from evalflows.specs.frozen import dataclass
from evalflows.stats.agreement import Metric, agreement, krippendorff_alpha
from evalflows.stats.judge_error import confusion, judge_error, prediction_powered_mean
from evalflows.stats.means import mean_estimate
from evalflows.store.queries.labels import JudgeOfLabels, LabelledMetric, labelled_items, majority
from evalflows.store.records import PEOPLE_PREFIX, CheckRow, derived_id, to_json
from evalflows.store.store import Store

Kind = Literal["yes_no", "pairs", "numbers", "labels"]

MAX_LABELS = 20
"""The most distinct labels for which a confusion table is reported: a larger one is unreadable."""

_LABEL_ORDER: dict[Kind, list[Any]] = {"yes_no": [1.0, 0.0], "pairs": ["left", "tie", "right"], "labels": []}
"""The labels that a confusion table always has, in its order."""

MIN_OF_A_KIND = 10
"""The fewest yes, and the fewest no, of people from which it can be told whether a judge agrees better than by chance.
Of simulated judges that find at least 70 % of the rare kind, and 95 % of the other, 98 % passed with so many among 60
and 200 labels; with three, at most 10 %."""

ABOVE_CHANCE = 0.0
"""Krippendorff's alpha at chance agreement: a judge passes if the interval of its alpha lies above it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeAndLabels:
    """A judge's verdicts and the human labels of the same units. A unit is a run, a compared pair of runs, or an
    item of production."""

    kind: Kind
    judged: pd.DataFrame  # the units that the judge scored, by unit: value, label, rate, together (cluster id)
    labels: pd.DataFrame  # the labels that count: unit, value, label, labeller, chance (sampling probability)
    people: pd.DataFrame  # the units that count, by unit: value, label, chance, value_judge, label_judge, together
    split: Sequence[str]  # the units on which people are evenly split, which do not count
    is_random_sample: bool

    @property
    def cluster_ids(self) -> list[str]:
        return list(self.people.together)


def join_labels(judgements: pd.DataFrame, labels: pd.DataFrame, *, is_pairs: bool) -> JudgeAndLabels:
    """Join one judge's verdicts with human labels: those of the random sample if there is one, else all labels.

    Raise InputError if one side has numbers and the other labels.
    """
    judged = judgements[judgements.status == "scored"].set_index("unit")
    counted = labels[labels.is_fair] if labels.is_fair.any() else labels
    counted = counted[counted.unit.isin(judged.index)]
    kind = _kind(judged, counted, is_pairs=is_pairs)
    judge = judged.rename(columns={"value": "value_judge", "label": "label_judge"})
    labelled = _combined_labels(counted, kind).join(judge[["value_judge", "label_judge", "together"]], how="inner")
    is_split = pd.Series(False, index=labelled.index) if kind == "numbers" else labelled.label.isna()
    return JudgeAndLabels(
        kind=kind,
        judged=judged,
        labels=counted,
        people=labelled[~is_split],
        split=[*labelled.index[is_split]],
        is_random_sample=bool(labels.is_fair.any()),
    )


def _kind(judged: pd.DataFrame, labels: pd.DataFrame, *, is_pairs: bool) -> Kind:
    if is_pairs:
        return "pairs"
    are_numbers = [bool(side.value.notna().any()) for side in (judged, labels) if len(side)]
    if len({*are_numbers}) > 1:
        by_judge, by_people = ("numbers" if is_number else "labels" for is_number in are_numbers)
        raise InputError(
            f"the judge gave {by_judge}, people {by_people}: wanted both to give the same (--people METRIC)"
        )
    if not all(are_numbers):
        return "labels"
    return "yes_no" if all(side.value.dropna().isin([0.0, 1.0]).all() for side in (judged, labels)) else "numbers"


def _combined_labels(labels: pd.DataFrame, kind: Kind) -> pd.DataFrame:
    """Return the labels of each unit combined: the majority label (None for a tie), its value or else the mean value,
    and the mean chance."""
    labels_to_count = labels.assign(label=labels.value if kind == "yes_no" else labels.label)
    by_unit = labels_to_count.groupby("unit", sort=True)
    label = pd.Series({unit: majority(given.dropna()) for unit, given in by_unit.label}, dtype=object)
    counted = labels_to_count
    if kind != "numbers":
        counted = labels_to_count[labels_to_count.label == labels_to_count.unit.map(label)]
    value = counted.groupby("unit").value.mean()
    return pd.DataFrame({"value": value, "label": label, "chance": by_unit.chance.mean()})


def agreement_figures(joined: JudgeAndLabels, confidence_level: float) -> dict[str, Any]:
    """Return the agreement of a judge with human labels, its error, and the means, ready for JSON."""
    figures = {
        "kind": joined.kind,
        "confidence_level": confidence_level,
        "n_judged": len(joined.judged),
        "n_labelled": len(joined.people) + len(joined.split),
        "n_labels": len(joined.labels),
        "n_labellers": int(joined.labels.labeller.fillna("").nunique()),
        "rests_on_fair": joined.is_random_sample,
        "drawn_unevenly": sampling_weights(joined.people) is not None and joined.people.chance.nunique() > 1,
        "people_alpha": alpha_among_people(joined.labels, joined.judged.together, joined.kind, confidence_level),
        "rare_kind": _rare_kind(joined),
        **_label_agreement(joined, confidence_level),
    }
    if joined.kind != "labels":
        figures |= {"error": asdict(_error(joined, confidence_level)), **_means(joined, confidence_level)}
    return figures


def _rare_kind(joined: JudgeAndLabels) -> dict[str, Any] | None:
    """Return which of yes and no people gave fewer than MIN_OF_A_KIND times, and how many more labels drawn at random
    should bring what is missing; None if neither."""
    n = len(joined.people)
    if joined.kind != "yes_no" or not n:
        return None
    n_yes = int((joined.people.label == 1).sum())
    label, count = min((1.0, n_yes), (0.0, n - n_yes), key=lambda kind: kind[1])
    if count >= MIN_OF_A_KIND:
        return None
    missing = MIN_OF_A_KIND - count
    n_unlabelled = len(joined.judged) - n - len(joined.split)
    n_more = math.ceil(missing * (n + 2) / (count + 1))  # with one more of each, since none were seen may be by chance
    return {"label": label, "n": count, "n_missing": missing, "n_more": n_more, "n_unlabelled": n_unlabelled}


def _label_agreement(joined: JudgeAndLabels, confidence_level: float) -> dict[str, Any]:
    if joined.kind == "numbers":
        pairs = list(zip(joined.people.value_judge, joined.people.value, strict=True))
        return {
            "alpha": asdict(
                krippendorff_alpha(pairs, joined.cluster_ids, metric="interval", confidence_level=confidence_level)
            )
        }
    (by_judge, by_people), cluster_ids = both_labels(joined.people, joined.kind), joined.cluster_ids
    alpha = krippendorff_alpha(
        list(zip(by_judge, by_people, strict=True)), cluster_ids, confidence_level=confidence_level
    )
    confusion_table = confusion(
        by_judge, by_people, cluster_ids, labels=_LABEL_ORDER[joined.kind], confidence_level=confidence_level
    )
    return {
        "n_split": len(joined.split),
        "agreement": asdict(agreement(by_judge, by_people, cluster_ids, confidence_level=confidence_level)),
        "alpha": asdict(alpha),
        "confusion": asdict(confusion_table) if len(confusion_table.labels) <= MAX_LABELS else None,
    }


def both_labels(people: pd.DataFrame, kind: Kind) -> tuple[list[Any], list[Any]]:
    """Return the judge's label and people's label of each unit."""
    return list(people.value_judge if kind == "yes_no" else people.label_judge), list(people.label)


def alpha_among_people(
    labels: pd.DataFrame, together: "pd.Series[str]", kind: Kind, confidence_level: float
) -> dict[str, Any] | None:
    """Krippendorff's alpha among the labellers; None if there is only one.

    `labels` has unit, labeller, value and label, once per unit and labeller; `together` has the units' cluster ids.
    """
    labels = labels.assign(labeller=labels.labeller.fillna(""))
    if labels.labeller.nunique() < 2:
        return None
    has_numbers = kind in ("yes_no", "numbers")
    wide = labels.pivot(index="unit", columns="labeller", values="value" if has_numbers else "label")
    metric: Metric = "interval" if kind == "numbers" else "nominal"
    cluster_ids = list(together.reindex(wide.index))
    ratings = [[None if pd.isna(label) else label for label in unit] for unit in wide.to_numpy(dtype=object)]
    return asdict(krippendorff_alpha(ratings, cluster_ids, metric=metric, confidence_level=confidence_level))


def _error(joined: JudgeAndLabels, confidence_level: float) -> Any:
    people, weights = joined.people, sampling_weights(joined.people)
    is_binary = joined.kind == "yes_no" and bool(people.value.isin([0.0, 1.0]).all()) and weights is None
    return judge_error(
        people.value_judge,
        people.value,
        joined.cluster_ids,
        weights=weights,
        confidence_level=confidence_level,
        binary=is_binary,
    )


def _means(joined: JudgeAndLabels, confidence_level: float) -> dict[str, Any]:
    """Return the judge's mean, the mean of the human labels, and the prediction-powered mean of both."""
    unlabelled = joined.judged[~joined.judged.index.isin([*joined.people.index, *joined.split])]
    is_binary = joined.kind == "yes_no"
    by_judge, cluster_ids = joined.judged.value, list(joined.judged.together)
    people = joined.people.value
    judge_mean = mean_estimate(by_judge, cluster_ids, confidence_level=confidence_level, binary=is_binary)
    labels_mean = mean_estimate(
        people,
        joined.cluster_ids,
        confidence_level=confidence_level,
        binary=is_binary and bool(people.isin([0, 1]).all()),
    )
    return {
        "judge_mean": asdict(judge_mean),
        "labels_mean": asdict(labels_mean),
        "powered_mean": asdict(
            prediction_powered_mean(
                people,
                joined.people.value_judge,
                unlabelled.value,
                [*joined.cluster_ids, *unlabelled.together],
                weights=sampling_weights(joined.people),
                bounds=None if joined.kind == "numbers" else (0.0, 1.0),
                confidence_level=confidence_level,
            )
        ),
        "no_powered_mean": _why_no_powered_mean(joined),
    }


def sampling_weights(people: pd.DataFrame) -> Any:
    """Inverse sampling probabilities of the labelled units; None if one is unknown."""
    chances = people.chance
    return 1 / chances.to_numpy(dtype=float) if len(chances) and chances.notna().all() else None


def _why_no_powered_mean(joined: JudgeAndLabels) -> str | None:
    if not joined.is_random_sample:
        return "the labels are not a random sample: the labellers or the judge chose what to label"
    if joined.people.chance.notna().any() and joined.people.chance.isna().any():
        return "only some labels have a sampling probability"
    if len(np.unique(joined.judged.rate.astype(float).fillna(1.0))) > 1:
        return "the judge scored a sample drawn with unequal probabilities"
    return None


def people_batch(subject_id: str, metric: str, people_metric: str) -> str:
    """Return the batch id of the checks of one metric's judges against human labels."""
    return PEOPLE_PREFIX + derived_id("people", subject_id, metric, people_metric)


def label_check(batch: str, judged: LabelledMetric, version: str, confidence_level: float) -> CheckRow:
    """Check one version of a judge against human labels; neither passed nor failed without an interval of alpha."""
    observed = _observed(judged, version, confidence_level)
    alpha = observed["alpha"]
    passed = None if alpha["low"] is None else alpha["low"] > ABOVE_CHANCE
    return CheckRow(
        check_id=derived_id(batch, judged.metric, version),
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


def _observed(judged: LabelledMetric, version: str, confidence_level: float) -> dict[str, Any]:
    judgements = judged.judgements[judged.judgements.evaluator_version == version]
    joined = join_labels(judgements, judged.labels, is_pairs=judged.subjects == "pairs")
    models = judgements.judge_model.dropna().unique()
    return {
        "subject_id": judged.subject_id,
        "name": judged.name,
        "candidate": judged.candidate,
        "sides": judged.sides,
        "people_metric": judged.people_metric,
        "evaluator": str(judgements.evaluator.iloc[0]),
        "evaluator_version": version,
        "judge_model": str(models[0]) if len(models) == 1 else None,
        "n_missing": int(judgements.status.isin(["failed", "not_attempted"]).sum()),
        "n_left_out": int(judged.labels.unit.nunique()) - len(joined.people) - len(joined.split),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedJudge:
    """One judge's agreement with human labels, over all experiments; several labels of an item count once."""

    evaluator: str
    evaluator_version: str
    judge_model: str
    metric: str
    people_metric: str
    n_items: int  # without those on which people are evenly split, unless they gave numbers
    n_labels: int
    agreement: float | None  # the share of items; None of numbers
    kappa: float | None
    bias: float | None
    correlation: float | None
    from_feedback: bool


def judge_standings(store: Store, evaluator: str | None = None) -> list[RankedJudge]:
    """Return all judges with human labels, or one, by the labelled metric, best first."""
    joined: dict[JudgeOfLabels, list[JudgeAndLabels]] = {}
    for items in labelled_items(store, evaluator):
        try:
            both = join_labels(items.judgements, items.labels, is_pairs=items.is_pairs)
        except InputError:  # numbers on one side and labels on the other cannot be compared
            continue
        joined.setdefault(items.judge, []).append(both)
    return sorted((_standing(judge, some) for judge, some in joined.items()), key=_place)


def _standing(judge: JudgeOfLabels, joined: Sequence[JudgeAndLabels]) -> RankedJudge:
    """Return the figures over all items of experiments in which the judge gave the same kind of values."""
    kind = "numbers" if any(both.kind == "numbers" for both in joined) else joined[0].kind
    people = pd.concat([both.people for both in joined])
    counted = pd.concat([both.labels for both in joined])
    found = None if kind == "numbers" else agreement(*both_labels(people, kind))
    error = None
    if kind in ("yes_no", "numbers"):
        error = judge_error(people.value_judge, people.value, weights=sampling_weights(people))
    return RankedJudge(
        **judge._asdict(),
        n_items=len(people) if found is None else found.n,
        n_labels=len(counted),
        agreement=None if found is None else found.share,
        kappa=None if found is None else found.kappa,
        bias=None if error is None else error.bias,
        correlation=None if error is None else error.correlation,
        from_feedback=not counted.is_fair.all(),
    )


def _place(judge: RankedJudge) -> tuple[object, ...]:
    """Return the best of each labelled metric first."""
    by_rank = judge.correlation if judge.kappa is None else judge.kappa
    ranks = [(value is None, -(value or 0.0)) for value in (by_rank, judge.agreement)]
    return judge.people_metric, *ranks, judge.evaluator, judge.evaluator_version
