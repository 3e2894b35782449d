"""The order in which production's traces or sessions become examples: newest, worst, least certain, or random."""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from evalflows.specs.errors import InputError
from evalflows.specs.trace_selection import RANKED, TraceSelection
from evalflows.stats.rater_agreement.label_next import expected_error
from evalflows.store.parquet import Store
from evalflows.store.queries.trace_filter import condition
from evalflows.store.queries.trace_items import LATEST, ItemKey, Window, item_keys
from evalflows.store.queries.trace_values import ItemValue, item_values, production_metric

MOST = 10_000_000
"""Most keys of items in memory."""


def ordered_keys(store: Store, selection: TraceSelection) -> tuple[list[ItemKey], int]:
    """Return the keys of the selected items in their order, and how many were left out for lack of a score.

    Raise InputError if the filter is invalid, if no item meets it, or if none has a score of the metric.
    """
    only = condition(selection.filter, selection.scope)
    window = Window(moment="started_at", since=selection.since, until=selection.until or LATEST, newest_first=True)
    keys = item_keys(store, selection.scope, only, window, MOST)
    if not keys:
        raise InputError(f"{selection.scope}: none meet the filter in this time, wanted at least one (`traces ls`)")
    if selection.order not in RANKED:
        lots = {key.id: _lot(key.id, selection.seed) for key in keys} if selection.order == "random" else None
        return (keys if lots is None else sorted(keys, key=lambda key: lots[key.id])), 0
    urgency = _urgency(store, selection)
    scored = [key for key in keys if key.id in urgency]
    if not scored:
        raise InputError(f"metric {selection.metric!r}: none of {len(keys)} selected {selection.scope} have a score")
    return sorted(scored, key=lambda key: (-urgency[key.id], key.id)), len(keys) - len(scored)


def _urgency(store: Store, selection: TraceSelection) -> Mapping[str, float]:
    """Return the items with a score of the metric; the larger their number, the earlier they come."""
    metric = selection.metric or ""
    declared = production_metric(store, metric)
    values = item_values(store, selection.scope, metric)
    if selection.order == "worst":
        return _badness(values, higher_is_better=bool(declared.higher_is_better))
    return _uncertainty(values, declared.range)


def _badness(values: Sequence[ItemValue], *, higher_is_better: bool) -> dict[str, float]:
    """Return the worst score of each item, negated if higher is better."""
    worst: dict[str, float] = {}
    for value in values:
        badness = -value.lowest if higher_is_better else value.highest
        worst[value.item] = max(badness, worst.get(value.item, -np.inf))
    return worst


def _uncertainty(values: Sequence[ItemValue], declared: tuple[float, float] | None) -> dict[str, float]:
    """Return an index of how uncertain each item's scores are, as in `labels next`.

    It grows as the score nears the middle of the range, as repeats of the judge differ, and as judges disagree.
    """
    by_item: defaultdict[str, list[ItemValue]] = defaultdict(list)
    for value in values:
        by_item[value.item].append(value)
    low, high = declared or (min(0.0, *(v.lowest for v in values)), max(1.0, *(v.highest for v in values)))
    most = max(map(len, by_item.values()))
    means = np.full((most, len(by_item)), np.nan)
    spreads = np.full(len(by_item), np.nan)
    for place, of_item in enumerate(by_item.values()):
        means[: len(of_item), place] = [np.clip(value.mean, low, high) for value in of_item]
        known = [value.spread for value in of_item if value.spread is not None]
        spreads[place] = max(known, default=np.nan)
    others = means[1:] if most > 1 else None
    errors = expected_error(means[0], low, high, spreads=spreads, others=others)
    return dict(zip(by_item, map(float, errors), strict=True))


def _lot(identity: str, seed: int) -> bytes:
    """Return a sort key that depends only on the seed and the id, so that new items hardly change the sample."""
    return hashlib.sha256(f"{seed}:{identity}".encode()).digest()
