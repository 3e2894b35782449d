"""Names of groups of texts: the terms that tell a group from the others."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

SAID_OF = 0.3
"""Least share of a group's sentences that have a term of its name."""

_TERM = re.compile(r"[^\W\d_]{3,}")


class Terms:
    """Which texts have which terms."""

    def __init__(self, sentences: Sequence[str]) -> None:
        self._of = [frozenset(_TERM.findall(sentence.lower())) for sentence in sentences]
        self._counts = Counter(term for terms in self._of for term in terms)

    def name(self, places: Iterable[int]) -> str:
        """Return the one or two terms that most tell the sentences at some places from the others, joined by _."""
        of_group = [self._of[index] for index in places]
        counts, n, rest = Counter(term for terms in of_group for term in terms), len(of_group), len(self._of)

        def weight(term: str) -> float:
            """Return the term's share within the group times the logarithm of its ratio to the share outside."""
            within, outside = counts[term] / n, (self._counts[term] - counts[term] + 1) / (rest - n + 2)
            return float(within * np.log(within / outside))

        usual = sorted((term for term in counts if counts[term] >= SAID_OF * n), key=lambda term: (-weight(term), term))
        telling = [term for term in usual if weight(term) > 0]
        telling = telling[:1] + [term for term in telling[1:2] if counts[term] >= n / 2]
        return "_".join(telling or usual[:1]) or "unnamed"


def unique(name: str, taken: set[str]) -> str:
    """Return a name as a taxonomy may have it, with a number if it is taken."""
    clean = re.sub(r"\W+", "_", name.strip().lower()).strip("_")[:50] or "unnamed"
    numbers = (f"{clean}_{number}" for number in range(2, len(taken) + 3))
    return clean if clean not in taken else next(numbered for numbered in numbers if numbered not in taken)
