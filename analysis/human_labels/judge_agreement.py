"""Agreement of a judge with human labels, its error, and the mean corrected for that error."""

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

MOST_LABELS = 20
"""Different labels, of which a table of confusion is still one to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """A judge's verdicts and the human labels of the same units; a unit is a run, or a compared pair of runs."""

    kind: Kind
    judged: pd.DataFrame  # of every unit that the judge scored, by unit: value, label, rate, together
    labels: pd.DataFrame  # of those that count: unit, value, label, labeller, chance
    people: pd.DataFrame  # by unit: value, the mean of people's; label, what most of them say; chance; judge's beside
    rests_on_fair: bool

    @property
    def together(self) -> list[str]:
        return list(self.people.together)


def beside(judgements: pd.DataFrame, labels: pd.DataFrame, *, is_pairs: bool) -> Beside:
    """Join one judge's verdicts with human labels: those of the random sample if there is one, else all labels.

    Raises InputError if one side has numbers and the other labels.
    """
    judged = judgements[judgements.status == "scored"].set_index("unit")
    some = labels[labels.is_fair] if labels.is_fair.any() else labels
    some = some[some.unit.isin(judged.index)]
    kind = _kind(judged, some, is_pairs=is_pairs)
    judge = judged.rename(columns={"value": "value_judge", "label": "label_judge"})
    people = _joint(some, kind).join(judge[["value_judge", "label_judge", "together"]], how="inner")
    return Beside(kind=kind, judged=judged, labels=some, people=people, rests_on_fair=bool(labels.is_fair.any()))


def _kind(judged: pd.DataFrame, labels: pd.DataFrame, *, is_pairs: bool) -> Kind:
    if is_pairs:
        return "pairs"
    numbers = [bool(side.value.notna().any()) for side in (judged, labels) if len(side)]
    if len({*numbers}) > 1:
        ours, theirs = ("numbers" if one else "labels" for one in numbers)
        raise InputError(f"the judge gave {ours}, people {theirs}: wanted both to give the same (--people METRIC)")
    if not all(numbers):
        return "labels"
    return "yes_no" if all(side.value.dropna().isin([0.0, 1.0]).all() for side in (judged, labels)) else "numbers"


def _joint(labels: pd.DataFrame, kind: Kind) -> pd.DataFrame:
    """What people say of each unit together: the mean, and what more of them say than anything else, if so."""
    said = labels.assign(label=labels.value if kind == "yes_no" else labels.label)
    by_unit = said.groupby("unit", sort=True)
    most = {unit: _most(list(given)) for unit, given in by_unit.label}
    return pd.DataFrame(
        {"value": by_unit.value.mean(), "label": pd.Series(most, dtype=object), "chance": by_unit.chance.mean()}
    )


def _most(given: Sequence[Any]) -> Any:
    """The most frequent label; None for a tie."""
    counts = pd.Series(given, dtype=object).value_counts()
    return None if counts.empty or (len(counts) > 1 and counts.iloc[0] == counts.iloc[1]) else counts.index[0]


def figures(found: Beside, confidence_level: float) -> dict[str, Any]:
    """All figures, ready for JSON."""
    made = {
        "kind": found.kind,
        "confidence_level": confidence_level,
        "n_judged": len(found.judged),
        "n_labelled": len(found.people),
        "n_labels": len(found.labels),
        "n_labellers": int(found.labels.labeller.fillna("").nunique()),
        "rests_on_fair": found.rests_on_fair,
        "drawn_unevenly": _weights(found) is not None and found.people.chance.nunique() > 1,
        "people_alpha": _among_people(found, confidence_level),
        **_agreed(found, confidence_level),
    }
    if found.kind != "labels":
        made |= {"error": asdict(_error(found, confidence_level)), **_means(found, confidence_level)}
    return made


def _agreed(found: Beside, confidence_level: float) -> dict[str, Any]:
    if found.kind == "numbers":
        pairs = list(zip(found.people.value_judge, found.people.value, strict=True))
        return {
            "alpha": asdict(
                krippendorff_alpha(pairs, found.together, metric="interval", confidence_level=confidence_level)
            )
        }
    known = found.people[found.people.label.notna()]
    ours = list(known.value_judge if found.kind == "yes_no" else known.label_judge)
    theirs, together = list(known.label), list(known.together)
    alpha = krippendorff_alpha(list(zip(ours, theirs, strict=True)), together, confidence_level=confidence_level)
    table = confusion(ours, theirs, together, labels=_ORDER[found.kind], confidence_level=confidence_level)
    return {
        "n_split": len(found.people) - len(known),
        "agreement": asdict(agreement(ours, theirs, together, confidence_level=confidence_level)),
        "alpha": asdict(alpha),
        "confusion": asdict(table) if len(table.labels) <= MOST_LABELS else None,
    }


_ORDER: dict[Kind, list[Any]] = {"yes_no": [1.0, 0.0], "pairs": ["left", "tie", "right"], "labels": []}
"""Labels as a table has them, whether they occur or not."""


def _among_people(found: Beside, confidence_level: float) -> dict[str, Any] | None:
    """Krippendorff's alpha among the labellers; None if there is only one."""
    by = found.labels.assign(labeller=found.labels.labeller.fillna(""))
    if by.labeller.nunique() < 2:
        return None
    numbers = found.kind in ("yes_no", "numbers")
    wide = by.pivot(index="unit", columns="labeller", values="value" if numbers else "label")
    metric: Metric = "interval" if found.kind == "numbers" else "nominal"
    together = list(found.judged.together.reindex(wide.index))
    ratings = [[None if pd.isna(one) else one for one in unit] for unit in wide.to_numpy(dtype=object)]
    return asdict(krippendorff_alpha(ratings, together, metric=metric, confidence_level=confidence_level))


def _error(found: Beside, confidence_level: float) -> Any:
    people, weights = found.people, _weights(found)
    is_binary = found.kind == "yes_no" and bool(people.value.isin([0.0, 1.0]).all()) and weights is None
    return judge_error(
        people.value_judge,
        people.value,
        found.together,
        weights=weights,
        confidence_level=confidence_level,
        binary=is_binary,
    )


def _means(found: Beside, confidence_level: float) -> dict[str, Any]:
    """The judge's mean, the mean of the human labels, and the prediction-powered mean of both."""
    rest = found.judged[~found.judged.index.isin(found.people.index)]
    binary = found.kind == "yes_no"
    ours, together = found.judged.value, list(found.judged.together)
    people = found.people.value
    bare = mean_estimate(ours, together, confidence_level=confidence_level, binary=binary)
    labels = mean_estimate(
        people, found.together, confidence_level=confidence_level, binary=binary and bool(people.isin([0, 1]).all())
    )
    return {
        "judge_mean": asdict(bare),
        "labels_mean": asdict(labels),
        "powered_mean": asdict(
            prediction_powered_mean(
                people,
                found.people.value_judge,
                rest.value,
                [*found.together, *rest.together],
                weights=_weights(found),
                bounds=None if found.kind == "numbers" else (0.0, 1.0),
                confidence_level=confidence_level,
            )
        ),
        "no_powered_mean": _no_powered(found),
    }


def _weights(found: Beside) -> Any:
    """Inverse sampling probabilities of the units; None if unknown."""
    chances = found.people.chance
    return 1 / chances.to_numpy(dtype=float) if len(chances) and chances.notna().all() else None


def _no_powered(found: Beside) -> str | None:
    """Why there is no prediction-powered mean; None if there is one."""
    if not found.rests_on_fair:
        return "the labels are not a random sample: the labellers or the judge chose what to label"
    if found.people.chance.notna().any() and found.people.chance.isna().any():
        return "only some labels have a sampling probability"
    if len(np.unique(found.judged.rate.astype(float).fillna(1.0))) > 1:
        return "the judge scored a sample drawn with unequal probabilities"
    return None
