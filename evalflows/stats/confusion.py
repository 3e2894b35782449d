"""A judge's verdicts against people's: rates of both kinds of errors."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from evalflows.stats.means import ShareEstimate, share_estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Confusion:
    """The confusion matrix of a judge against people."""

    labels: tuple[Hashable, ...]  # K, in order of first occurrence, people's before the judge's
    counts: tuple[tuple[int, ...], ...]  # (K, K): people's labels in rows, the judge's in columns
    found: tuple[ShareEstimate, ...]  # K, recall: of the items with this label from people, the share the judge agrees
    right: tuple[ShareEstimate, ...]  # K, precision: of the items with this label from the judge, the same of people
    n: int


def confusion(
    judge: Sequence[Hashable],
    people: Sequence[Hashable],
    clusters: Sequence[Hashable] | None = None,
    *,
    labels: Sequence[Hashable] = (),
    confidence_level: float = 0.95,
) -> Confusion:
    """Return the confusion matrix of a judge's labels against people's.

    `judge` and `people` are n labels each, of any hashable type, matched by position; `labels` come first in the
    matrix, in this order, even if they do not occur. The shares have Wilson's interval (`share_estimate`), or its
    cluster version with `clusters`. For the labels 1 and 0, `found` holds the sensitivity and the specificity, `right`
    the precision of yes and of no.

    Raise ValueError if the lengths differ, if a label is None or nan, and for what `share_estimate` refuses.
    """
    if len(judge) != len(people):
        raise ValueError(f"judge: got {len(judge)} labels, wanted as many as people's {len(people)}")
    for name, rater in (("judge", judge), ("people", people)):
        for index, label in enumerate(rater):
            if label is None or label != label:
                raise ValueError(f"{name}[{index}]: got {label!r}, wanted a label")
    all_labels = tuple(dict.fromkeys([*labels, *people, *judge]))
    number = {label: index for index, label in enumerate(all_labels)}
    rows, columns = (np.array([number[label] for label in rater], dtype=np.intp) for rater in (people, judge))
    counts = np.zeros((len(all_labels), len(all_labels)), dtype=int)
    np.add.at(counts, (rows, columns), 1)
    groups = None if clusters is None else list(clusters)
    return Confusion(
        labels=all_labels,
        counts=tuple(tuple(row) for row in counts.tolist()),
        found=tuple(_share_of(rows == k, columns == k, groups, confidence_level) for k in range(len(all_labels))),
        right=tuple(_share_of(columns == k, rows == k, groups, confidence_level) for k in range(len(all_labels))),
        n=len(people),
    )


def _share_of(
    among: np.ndarray[tuple[int], np.dtype[np.bool_]],
    yes: np.ndarray[tuple[int], np.dtype[np.bool_]],
    clusters: list[Hashable] | None,
    confidence_level: float,
) -> ShareEstimate:
    places = np.flatnonzero(among)
    groups = None if clusters is None else [clusters[index] for index in places]
    return share_estimate(yes[places].astype(np.float64), groups, confidence_level=confidence_level)
