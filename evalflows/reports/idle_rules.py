"""Watch rules that could not look: why, and at how many of the newest windows."""

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any, NamedTuple

from evalflows.specs.grouping import grouped
from evalflows.store.records import from_json
from evalflows.store.sql import ask
from evalflows.store.store import Store

NEWEST = 30
"""Windows of each rule that count, the newest ones."""

REASONS = {"learning": "still learning what is usual", "no_reference": "nothing to compare with yet"}
"""Codes of reasons other than too few traces, in words."""


def evaluations(store: Store) -> list[str]:
    """Return the names of all trace evaluations."""
    (names,) = ask(store, ("select distinct name from watermarks order by name", []))
    return [name for (name,) in names]


class _Idle(NamedTuple):
    """What kept a rule from looking."""

    missed: int
    windows: int
    size: str
    reason: str


def rules_that_could_not_look(store: Store, evaluation: str) -> list[str]:
    """Return a sentence for the watch rules of a trace evaluation that could look at less than half of their newest
    windows, of all traces; rules with the same reason together. Empty if there is none."""
    (specs, looks) = ask(store, (_SPEC, [evaluation]), (_LOOKS, [evaluation, NEWEST]))
    if not specs or not looks:
        return []
    wanted = {rule.get("min_n") for rule in from_json(specs[0][0]).get("watch") or ()}
    by_rule = grouped((rule, look) for rule, *look in looks)
    idle = grouped((found, rule) for rule, its in by_rule.items() if (found := _idle(its, wanted)) is not None)
    return [*_sentences(idle)]


def _idle(looks: Sequence[Sequence[Any]], wanted: set[int | None]) -> _Idle | None:
    missed = [look for look in looks if look[1] == "not_evaluated"]
    if 2 * len(missed) <= len(looks):
        return None
    size = str(missed[0][0])
    ((code, _),) = Counter(look[2] for look in missed).most_common(1)
    reason = REASONS.get(code, "no interval")
    if code == "below_min_examples":
        what = "sessions" if any(look[4] is not None for look in missed) else "traces"
        usual = median(look[3] if look[4] is None else look[4] for look in missed)
        of_rules = sorted(n for n in wanted if n is not None and n > usual)
        least = f", wanted {of_rules[0]} (min_n)" if len({*of_rules}) == 1 else ", wanted its min_n"
        reason = f"{usual:g} {what} a {size}{least}"
    return _Idle(len(missed), len(looks), size, reason)


def _sentences(idle: dict[_Idle, list[str]]) -> Iterator[str]:
    for case, rules in idle.items():
        who = f"{len(rules)} rules ({', '.join(rules)})" if len(rules) > 1 else f"the rule {rules[0]}"
        of = f"{case.missed} of {case.windows} {case.size}s"
        yield f"{who} could not look at {of}: {case.reason}"


_SPEC = "select spec from watermarks where name = $1 order by started_at desc limit 1"

_LOOKS = """
select w.rule, w.size, w.outcome, w.reason_code, w.n, w.n_clusters
from watched_windows w
where w.slice = 'all' and w.evaluation_id in (select evaluation_id from watermarks where name = $1)
qualify row_number() over (partition by w.rule order by w.window_start desc) <= $2
order by w.rule, w.window_start
"""
