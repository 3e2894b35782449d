"""Texts that stand for many: those nearest to the middle of all by their words, which takes no model."""

import math
import re
from collections import Counter
from collections.abc import Sequence

_WORD = re.compile(r"\w+")


def typical(texts: Sequence[str], count: int) -> list[int]:
    """Return the places of the texts nearest to the middle of all, the nearest first; equal ones only if there are no
    others.

    Near is the cosine of their words, each weighted by the logarithm of how few texts have it (Spärck Jones 1972).
    """
    words = [{*_WORD.findall(text.lower())} for text in texts]
    having = Counter(word for some in words for word in some)
    weights = {word: math.log(1 + len(texts) / n) for word, n in having.items()}
    lengths = [math.hypot(*(weights[word] for word in some)) or 1.0 for some in words]
    middle: Counter[str] = Counter()
    for some, length in zip(words, lengths, strict=True):
        middle.update({word: weights[word] / length for word in some})
    near = [
        sum(middle[word] * weights[word] for word in sorted(some)) / length
        for some, length in zip(words, lengths, strict=True)
    ]
    first = {text: place for place, text in reversed([*enumerate(texts)])}
    return sorted(range(len(texts)), key=lambda place: (first[texts[place]] != place, -near[place], place))[:count]
