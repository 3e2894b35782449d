"""What was retrieved against what is relevant: hit, recall, precision and nDCG at k, reciprocal rank, average
precision."""

import math
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from typing import Any, Literal, get_args

from evalflows.evaluators.comments import listed
from evalflows.evaluators.declarations import Direction, checks_examples, declares, needs_reference, zero_to_one
from evalflows.evaluators.paths import path_roots, value_at
from evalflows.evaluators.score import Score
from evalflows.evaluators.settings import checked_choice, checked_count, is_number
from evalflows.evaluators.views import ExampleView
from evalflows.specs.errors import short
from evalflows.specs.frozen import dataclass

Measure = Literal["hit", "recall", "precision", "mrr", "map", "ndcg"]
By = Literal["equal", "contains"]
Gain = Literal["linear", "exponential"]

MEASURES: tuple[Measure, ...] = get_args(Measure)
WHOLE = ("mrr", "map")
"""Measures of the whole ranking; the others have one metric for each k."""

FIRST = (5,)
RETRIEVED, RELEVANT = "outputs.contexts", "reference_outputs.relevant"
FIELDS: Mapping[str, str] = {"equal": "id", "contains": "text"}
"""The field of an object that is compared."""


def _metrics(name: str, settings: Mapping[str, Any]) -> dict[str, Direction]:
    named = _named(settings.get("measures", MEASURES), settings.get("k", FIRST), settings.get("prefix", ""))
    return {metric: zero_to_one() for metric in named}


def _named(measures: Any, k: Any, prefix: Any) -> dict[str, tuple[Measure, int]]:
    """Return the measure and the k of each metric; 0 for a measure of the whole ranking."""
    cuts = [checked_count("k", cut) for cut in (k if isinstance(k, list | tuple) else [k])]
    listed_measures = measures if isinstance(measures, list | tuple) else [measures]
    chosen = [checked_choice("measures", measure, Measure) for measure in listed_measures]
    if not cuts or not chosen:
        raise ValueError(f"{'measures' if cuts else 'k'}: got an empty list, wanted at least one")
    if not isinstance(prefix, str):
        raise ValueError(f"prefix: got {short(prefix)}, wanted a text")
    return {
        f"{prefix}{measure}@{cut}" if cut else f"{prefix}{measure}": (measure, cut)
        for measure in chosen
        for cut in ((0,) if measure in WHOLE else cuts)
    }


def _check_examples(examples: Iterable[ExampleView], settings: Mapping[str, Any]) -> None:
    """Raise ValueError for the first example whose items cannot be read, and for a path that no example has."""
    wanted = {"relevant": settings.get("relevant", RELEVANT), "retrieved": settings.get("retrieved", RETRIEVED)}
    known = {setting: path for setting, path in wanted.items() if not str(path).startswith("outputs.")}
    by, missing, fields = settings.get("by", "equal"), dict(known), dict[str, None]()
    for example in examples:
        roots = path_roots(example.inputs, {}, example.reference_outputs, example.metadata)
        fields |= {f"{root}.{name}": None for root, mapping in roots.items() for name in mapping or ()}
        for setting, path in known.items():
            try:
                if (value := value_at(setting, path, roots)) is not None:
                    missing.pop(setting, None)
                    _grades(value, path, by, str) if setting == "relevant" else _items(setting, value, path, by, str)
            except ValueError as error:
                raise ValueError(f"example {example.id!r}: {error}") from error
    for setting, path in missing.items():
        raise ValueError(f"{setting}: no example has {path!r}, wanted a path to the items: {', '.join(fields)}")


@declares(_metrics)
@needs_reference
@checks_examples(_check_examples)
def retrieval(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    metadata: dict[str, Any] | None = None,
    *,
    retrieved: str = RETRIEVED,
    relevant: str = RELEVANT,
    measures: Sequence[Measure] = MEASURES,
    k: Sequence[int] = FIRST,
    by: By = "equal",
    min_grade: float | None = None,
    gain: Gain = "linear",
    ignore_case: bool = False,
    prefix: str = "",
) -> list[Score] | None:
    """How well a ranking has the relevant items first, 0 to 1, with a metric per measure: `recall@5`, `mrr`.

    `retrieved` and `relevant` are paths: to a list with the best first, and to the relevant items, or a mapping from
    items to grades (0 is not relevant). Items are ids or texts, or mappings with the field `id` (and the grade as
    `grade`). They are the same if they differ only in Unicode form and white space. With `by` "contains", a retrieved
    text (or the field `text`) is relevant if it contains a relevant passage, which is found at the rank of the first
    text that contains it. An item retrieved twice counts at its first rank.

    hit@k: whether a relevant item is among the first k. recall@k: the share of the relevant that are. precision@k:
    the relevant ones among the first k, divided by k even if fewer were retrieved. mrr: 1 divided by the rank of the
    first relevant item. map: the average precision over all relevant items. ndcg@k: the discounted gain of the first
    k, divided by that of the best order; the gain of an item is its grade (linear) or 2^grade - 1 (exponential), its
    discount log2(1 + rank). For all others, an item is relevant from `min_grade` on, by default above 0. `prefix`
    stands before the names of all metrics, so that a spec can judge two lists.

    None if nothing is relevant; 0 if nothing was retrieved. Raise ValueError for outputs without the field, and for
    items of another type. It cannot see relevant items that nobody listed, nor whether the answer used what was found.
    """
    named = _named(measures, k, prefix)
    checked_choice("by", by, By)
    checked_choice("gain", gain, Gain)
    if min_grade is not None and (not is_number(min_grade) or min_grade <= 0):
        raise ValueError(f"min_grade: got {short(min_grade)}, wanted a number above 0")
    roots, fold = path_roots(inputs, outputs, reference_outputs, metadata), partial(_folded, ignore_case=ignore_case)
    grades = _grades(value_at("relevant", relevant, roots), relevant, by, fold)
    value = value_at("retrieved", retrieved, roots)
    if not grades or (value is None and not retrieved.startswith("outputs.")):
        return None
    items = [] if value is None else _items("retrieved", value, retrieved, by, fold)
    ranking = _ranked(items, grades, by, min_grade)
    return [ranking.score(metric, measure, cut, gain) for metric, (measure, cut) in named.items()]


@dataclass(frozen=True, slots=True)
class _Ranking:
    grades: Mapping[str, float]  # all above 0
    relevant: Set[str]  # the items whose grade counts as relevant
    ranks: Mapping[str, int]  # of the items in `grades` that were found
    useful: Sequence[bool]  # by rank: whether it is, or contains, a relevant item

    def score(self, metric: str, measure: Measure, k: int, gain: Gain) -> Score:
        if measure == "ndcg":
            found = [(self.ranks[item], grade) for item, grade in self.grades.items() if item in self.ranks]
            best = enumerate(sorted(self.grades.values(), reverse=True), start=1)
            # One text may contain several passages, so that it is better than the best order.
            return Score(key=metric, value=min(1.0, _gained(found, k, gain) / _gained(best, k, gain)))
        if not self.relevant:
            return Score(key=metric)
        ranks = [self.ranks[item] for item in self.relevant if item in self.ranks]
        lost = [item for item in self.relevant if self.ranks.get(item, math.inf) > k]
        match measure:
            case "hit":
                return Score(key=metric, value=len(lost) < len(self.relevant))
            case "recall":
                comment = f"not in the first {k}: {listed(lost)}" if lost else None
                return Score(key=metric, value=1 - len(lost) / len(self.relevant), comment=comment)
            case "precision":
                return Score(key=metric, value=sum(self.useful[:k]) / k)
            case "mrr":
                return Score(key=metric, value=1 / min(ranks) if ranks else 0.0)
            case "map":
                precisions = [sum(self.useful[:rank]) / rank for rank in ranks]
                return Score(key=metric, value=math.fsum(precisions) / len(self.relevant))


def _gained(found: Iterable[tuple[int, float]], k: int, gain: Gain) -> float:
    """Return the discounted cumulative gain of ranks and grades up to the rank k."""
    gains = ((rank, grade if gain == "linear" else 2**grade - 1) for rank, grade in found if rank <= k)
    return math.fsum(amount / math.log2(1 + rank) for rank, amount in gains)


def _ranked(items: Sequence[str], grades: Mapping[str, float], by: By, min_grade: float | None) -> _Ranking:
    relevant = {item: grade for item, grade in grades.items() if min_grade is None or grade >= min_grade}.keys()
    ranks: dict[str, int] = {}
    useful = []
    for rank, item in enumerate(dict.fromkeys(items), start=1):
        held = [wanted for wanted in ([item] if by == "equal" else grades) if wanted in grades and wanted in item]
        for wanted in held:
            ranks.setdefault(wanted, rank)
        useful.append(any(wanted in relevant for wanted in held))
    return _Ranking(grades, relevant, ranks, useful)


def _grades(value: Any, path: str, by: By, fold: Callable[[str], str]) -> dict[str, float]:
    """Return the grades of the relevant items, without those of grade 0 and blank texts."""
    if isinstance(value, Mapping):
        graded = [({FIELDS[by]: item}, grade) for item, grade in value.items()]
    else:
        items = value if isinstance(value, list | tuple) else [] if value is None else [value]
        graded = [(item, item.get("grade", 1) if isinstance(item, Mapping) else 1) for item in items]
    grades: dict[str, float] = {}
    for item, grade in graded:
        (text,) = _items("relevant", [item], path, by, fold)
        if not is_number(grade) or grade < 0:
            raise ValueError(f"relevant: {short(text)}: got the grade {short(grade)}, wanted a number of at least 0")
        if text and grade:
            grades[text] = max(grade, grades.get(text, 0))
    return grades


def _items(setting: str, value: Any, path: str, by: By, fold: Callable[[str], str]) -> list[str]:
    field, items = FIELDS[by], value if isinstance(value, list | tuple) else [value]
    return [fold(_text(item, field, f"{setting}: {path}")) for item in items]


def _text(item: Any, field: str, where: str) -> str:
    if isinstance(item, Mapping):
        if field not in item:
            raise ValueError(f"{where}: got an item with {', '.join(item)}, wanted {field}, or the path to its field")
        item = item[field]
    if isinstance(item, float) and item.is_integer():  # as tables with empty cells make of ids
        item = int(item)
    if isinstance(item, bool) or not isinstance(item, str | int):
        raise ValueError(f"{where}: got {short(item)}, wanted an id or a text, or mappings with {field}")
    return str(item)


def _folded(text: str, ignore_case: bool) -> str:
    """Return a text in the form in which it is compared."""
    text = " ".join(unicodedata.normalize("NFC", text).split())
    return text.casefold() if ignore_case else text
