"""Agreement of a judge with human labels, its error, and the mean corrected for that error."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from evalflows.specs.errors import InputError
from evalflows.stats.mean import mean_estimate
from evalflows.stats.rater_agreement.agreement import agreement
from evalflows.stats.rater_agreement.judge_error import confusion, judge_error
from evalflows.stats.rater_agreement.krippendorff import Metric, krippendorff_alpha
from evalflows.stats.rater_agreement.prediction_powered import prediction_powered_mean

Kind = Literal["yes_no", "pairs", "numbers", "labels"]

MAX_LABELS = 20
"""The most distinct labels for which a confusion table is reported: a larger one is unreadable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeAndLabels:
    """A judge's verdicts and the human labels of the same units. A unit is a run, or a compared pair of runs."""

    kind: Kind
    judged: pd.DataFrame  # the units that the judge scored, by unit: value, label, rate, together (cluster id)
    labels: pd.DataFrame  # the labels that count: unit, value, label, labeller, chance (sampling probability)
    people: pd.DataFrame  # the labelled units, by unit: value, label, chance, value_judge, label_judge, together
    is_random_sample: bool

    @property
    def cluster_ids(self) -> list[str]:
        return list(self.people.together)


def join_labels(judgements: pd.DataFrame, labels: pd.DataFrame, *, is_pairs: bool) -> JudgeAndLabels:
    """Join one judge's verdicts with human labels: those of the random sample if there is one, else all labels.

    Raises InputError if one side has numbers and the other labels.
    """
    judged = judgements[judgements.status == "scored"].set_index("unit")
    counted = labels[labels.is_fair] if labels.is_fair.any() else labels
    counted = counted[counted.unit.isin(judged.index)]
    kind = _kind(judged, counted, is_pairs=is_pairs)
    judge = judged.rename(columns={"value": "value_judge", "label": "label_judge"})
    people = _combined_labels(counted, kind).join(judge[["value_judge", "label_judge", "together"]], how="inner")
    return JudgeAndLabels(
        kind=kind, judged=judged, labels=counted, people=people, is_random_sample=bool(labels.is_fair.any())
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
    """The labels of each unit combined: the mean value, the majority label (None for a tie), and the mean chance."""
    labels_to_count = labels.assign(label=labels.value if kind == "yes_no" else labels.label)
    by_unit = labels_to_count.groupby("unit", sort=True)
    majority = {unit: _majority(list(given)) for unit, given in by_unit.label}
    return pd.DataFrame(
        {"value": by_unit.value.mean(), "label": pd.Series(majority, dtype=object), "chance": by_unit.chance.mean()}
    )


def _majority(given: Sequence[Any]) -> Any:
    """The most frequent label; None for a tie or without labels."""
    most = Counter(label for label in given if not pd.isna(label)).most_common(2)
    is_tie = len(most) == 2 and most[0][1] == most[1][1]
    return most[0][0] if most and not is_tie else None


def agreement_figures(joined: JudgeAndLabels, confidence_level: float) -> dict[str, Any]:
    """The agreement of a judge with human labels, its error, and the means, ready for JSON."""
    figures = {
        "kind": joined.kind,
        "confidence_level": confidence_level,
        "n_judged": len(joined.judged),
        "n_labelled": len(joined.people),
        "n_labels": len(joined.labels),
        "n_labellers": int(joined.labels.labeller.fillna("").nunique()),
        "rests_on_fair": joined.is_random_sample,
        "drawn_unevenly": sampling_weights(joined.people) is not None and joined.people.chance.nunique() > 1,
        "people_alpha": _agreement_among_people(joined, confidence_level),
        **_label_agreement(joined, confidence_level),
    }
    if joined.kind != "labels":
        figures |= {"error": asdict(_error(joined, confidence_level)), **_means(joined, confidence_level)}
    return figures


def _label_agreement(joined: JudgeAndLabels, confidence_level: float) -> dict[str, Any]:
    if joined.kind == "numbers":
        pairs = list(zip(joined.people.value_judge, joined.people.value, strict=True))
        return {
            "alpha": asdict(
                krippendorff_alpha(pairs, joined.cluster_ids, metric="interval", confidence_level=confidence_level)
            )
        }
    decided = joined.people[joined.people.label.notna()]
    (by_judge, by_people), cluster_ids = both_labels(decided, joined.kind), list(decided.together)
    alpha = krippendorff_alpha(
        list(zip(by_judge, by_people, strict=True)), cluster_ids, confidence_level=confidence_level
    )
    confusion_table = confusion(
        by_judge, by_people, cluster_ids, labels=_LABEL_ORDER[joined.kind], confidence_level=confidence_level
    )
    return {
        "n_split": len(joined.people) - len(decided),
        "agreement": asdict(agreement(by_judge, by_people, cluster_ids, confidence_level=confidence_level)),
        "alpha": asdict(alpha),
        "confusion": asdict(confusion_table) if len(confusion_table.labels) <= MAX_LABELS else None,
    }


def both_labels(people: pd.DataFrame, kind: Kind) -> tuple[list[Any], list[Any]]:
    """The judge's label and people's label of each unit on which people are not evenly split."""
    decided = people[people.label.notna()]
    return list(decided.value_judge if kind == "yes_no" else decided.label_judge), list(decided.label)


_LABEL_ORDER: dict[Kind, list[Any]] = {"yes_no": [1.0, 0.0], "pairs": ["left", "tie", "right"], "labels": []}
"""The labels that a confusion table always has, in its order."""


def _agreement_among_people(joined: JudgeAndLabels, confidence_level: float) -> dict[str, Any] | None:
    """Krippendorff's alpha among the labellers; None if there is only one."""
    return alpha_among_people(joined.labels, joined.judged.together, joined.kind, confidence_level)


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
    """The judge's mean, the mean of the human labels, and the prediction-powered mean of both."""
    unlabelled = joined.judged[~joined.judged.index.isin(joined.people.index)]
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
    """Why there is no prediction-powered mean; None if there is one."""
    if not joined.is_random_sample:
        return "the labels are not a random sample: the labellers or the judge chose what to label"
    if joined.people.chance.notna().any() and joined.people.chance.isna().any():
        return "only some labels have a sampling probability"
    if len(np.unique(joined.judged.rate.astype(float).fillna(1.0))) > 1:
        return "the judge scored a sample drawn with unequal probabilities"
    return None
