"""Confusion matrices of experiments: which labels were expected, and which were answered."""

from collections.abc import Mapping, Sequence

from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped

NO_LABEL = "none of these"
"""The column of answers that have none of the labels, and of missing answers."""

MOST_LABELS = 20
"""A larger matrix is shown by its most frequent errors alone."""

MOST_ERRORS = 5

CONFUSIONS = """
select e.target, c.experiment_id, c.evaluator, c.expected, c.got, c.n from confusion c
join experiments e using (experiment_id)
where is_one_of(c.experiment_id, $1) order by list_position($1, c.experiment_id), c.evaluator, c.expected, c.got
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confusion:
    """The confusion matrix of one experiment and evaluator."""

    target: str
    experiment_id: str
    evaluator: str
    labels: Sequence[str]  # that were expected
    counts: Mapping[tuple[str, str | None], int]  # by what was expected and what was answered; None: none of them

    @property
    def columns(self) -> list[str | None]:
        """The labels that are shown as answered."""
        return [*self.labels, *([None] if any(got is None for _, got in self.counts) else [])]

    @property
    def is_shown_whole(self) -> bool:
        return len(self.labels) <= MOST_LABELS

    @staticmethod
    def name_of(label: str | None) -> str:
        return label or NO_LABEL

    def count(self, expected: str, got: str | None) -> int:
        return self.counts.get((expected, got), 0)

    def n_expected(self, label: str) -> int:
        return sum(n for (expected, _), n in self.counts.items() if expected == label)

    @property
    def errors(self) -> list[tuple[str, str | None, int]]:
        """What was confused, the most frequent first: expected, answered, how often."""
        wrong = [(expected, got, n) for (expected, got), n in self.counts.items() if expected != got and n]
        return sorted(wrong, key=lambda error: (-error[2], error[0], error[1] or ""))

    @property
    def title(self) -> str:
        return f"{self.evaluator} of {self.target}: expected in rows, answered in columns"

    @property
    def cells(self) -> tuple[list[str], list[list[str]]]:
        """The header and the rows."""
        header = ["expected", *map(self.name_of, self.columns), "all"]
        rows = [
            [label, *(str(self.count(label, got)) for got in self.columns), str(self.n_expected(label))]
            for label in self.labels
        ]
        return header, rows

    @property
    def errors_text(self) -> str:
        """The most frequent errors, in a sentence."""
        if not self.errors:
            return f"{self.evaluator} of {self.target}: all labels are right"
        named = [
            f"{expected} as {self.name_of(got)} {n} time{'s' * (n != 1)}"
            for expected, got, n in self.errors[:MOST_ERRORS]
        ]
        more = f", and {len(self.errors) - MOST_ERRORS} more" if len(self.errors) > MOST_ERRORS else ""
        return f"{self.evaluator} of {self.target} most often confuses: {', '.join(named)}{more}"


def confusions_in(rows: Sequence[tuple[str, str, str, str, str | None, int]]) -> list[Confusion]:
    """Return the matrices in the rows of the query CONFUSIONS, each once even if two evaluators give it.

    Answers outside the expected labels are none of them.
    """
    found: list[Confusion] = []
    for (target, experiment, evaluator), cells in grouped((row[:3], row[3:]) for row in rows).items():
        labels = list(dict.fromkeys(expected for expected, _, _ in cells))
        counts: dict[tuple[str, str | None], int] = {}
        for expected, got, n in cells:
            key = (expected, got if got in labels else None)
            counts[key] = counts.get(key, 0) + n
        if not any(other.experiment_id == experiment and other.counts == counts for other in found):
            found.append(
                Confusion(target=target, experiment_id=experiment, evaluator=evaluator, labels=labels, counts=counts)
            )
    return found
