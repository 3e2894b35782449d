"""How what is not complete can be continued, if a command can do it."""

import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from evalflows.specs import hints
from evalflows.specs.hints import Hint
from evalflows.store.queries.spending import Paid, paid, spent_by_group
from evalflows.store.records import from_json
from evalflows.store.store import Store

ROOM = 1.1
"""How much larger a proposed budget is than what is expected to be spent."""


def continuing(store: Store, identity: str) -> Hint | None:
    """Return the command that continues an experiment or a comparison; None if only the process that began it could.

    If its budget is spent, the command raises it, to what the rest costs if it is like what is done. A function that
    was defined in a notebook or within another function is known to that process only.
    """
    (row,) = store.read("experiments", identity) or store.read("comparison_sets", identity)
    spec, group = from_json(row.spec), getattr(row, "run_group", None)
    if any(str(function).startswith("live:") for function in _functions(spec)):
        return None
    refused = _refused_by_budget(store, identity, group)
    if "unpriced" in refused:
        return hints.resume(identity, ["budget_counts_unknown=false"], "or give the price of its model")
    if not refused:
        return hints.resume(identity)
    spent = paid(store, identity) if group is None else spent_by_group(store, group)
    share = None if group is None else _share_done(store, group)
    limits = _larger_limits(spec, spent, refused["over_budget"], share)
    return hints.resume(identity, [*limits], "the remaining calls exceed the budget")


def continued_by(store: Store, identity: str) -> str:
    """Say what continues an experiment or a comparison."""
    hint = continuing(store, identity)
    if hint is None and store.read("experiments", identity):
        return f"in the process that has its functions, `ExperimentResult({identity!r}).resume()` continues"
    if hint is None:
        return "only a process that has its functions can continue it: call it again there, finished calls are reused"
    return f"{hint.code} continues"


def begun_since(store: Store, moment: datetime) -> str | None:
    """Return the experiment or the comparison that was begun or resumed last since then and is open; None if none."""
    query = """select id from (
                   select experiment_id as id, recorded_at, state from source.experiments
                   union all select comparison_id, recorded_at, state from source.comparison_sets)
               where recorded_at >= $1 and state <> 'completed' order by recorded_at desc, id limit 1"""
    return next((str(identity) for (identity,) in store.query(query, [moment])), None)


def undecided_since(store: Store, moment: datetime) -> str | None:
    """Return an experiment that was begun or resumed since then, and ended, but whose gates have not decided."""
    query = """select experiment_id from source.experiments e
               where recorded_at >= $1 and state = 'completed' and json_array_length(spec -> '$.gates') > 0
               and not list_contains(tags, 'trial') and not exists (
                   select 1 from source.decisions d join source.experiments c
                   on c.experiment_id = d.candidate_experiment_id where c.run_group = e.run_group)
               order by recorded_at desc, experiment_id limit 1"""
    return next((str(identity) for (identity,) in store.query(query, [moment])), None)


def batch_since(store: Store, moment: datetime) -> str | None:
    """Return the name of the trace evaluation whose batch was begun since then, and has not ended."""
    query = """select name from source.watermarks
               where started_at >= $1 and state = 'running' order by started_at desc limit 1"""
    return next((str(name) for (name,) in store.query(query, [moment])), None)


def _functions(spec: Any) -> Iterator[Any]:
    """Yield the references to functions anywhere in a spec."""
    if isinstance(spec, Mapping):
        for name, value in spec.items():
            if name in ("function", "use"):
                yield value
            yield from _functions(value)
    elif isinstance(spec, list):
        for value in spec:
            yield from _functions(value)


def _refused_by_budget(store: Store, identity: str, group: str | None) -> dict[str, float]:
    """Return why the budget did not allow calls of a comparison, or of any experiment of a run group: error kinds, each
    with the USD of the largest call that did not fit, as its error says them."""
    owners = "experiment_id = $1"
    if group is not None:
        owners = "experiment_id in (select experiment_id from source.experiments where run_group = $1)"
    refused = " union all ".join(
        f"select error_kind, error from source.{table} where {owners} and status = 'not_attempted' "
        "and error_kind in ('over_budget', 'unpriced')"
        for table in ("outputs", "judgements")
    )
    of_call = "try_cast(regexp_extract(error, 'of at most ([0-9.]+) USD', 1) as double)"
    query = f"select error_kind, coalesce(max({of_call}), 0) from ({refused}) group by 1"
    return dict(store.query(query, [group or identity]))


def _share_done(store: Store, group: str) -> float | None:
    """Return the share of the planned answers of a run group that are done: made, and judged by each evaluator that has
    begun; None if that is not known."""
    query = """with own as (
                   select experiment_id, n_examples * repetitions as planned
                   from source.experiments where run_group = $1
               ), done as (
                   select count(*) filter (status <> 'not_attempted') as n from source.outputs
                   where experiment_id in (select experiment_id from own)
                   union all
                   select count(distinct subject_id) filter (status <> 'not_attempted') from source.judgements
                   where subject_kind = 'run' and experiment_id in (select experiment_id from own) group by evaluator
               )
               select min(n) / nullif((select sum(planned) from own), 0) from done"""
    return store.query(query, [group])[0][0]  # type: ignore[no-any-return]


def _larger_limits(spec: Mapping[str, Any], spent: Paid, needed_usd: float, share_done: float | None) -> Iterator[str]:
    """Yield the limit that was reached: of calls, twice as many; of money, what all costs if the rest is like what is
    done, with some room, or twice as much if nothing is known of that. The call that did not fit has room."""
    calls, usd = spec.get("max_calls"), spec.get("budget_usd")
    is_out_of_calls = calls is not None and spent.calls >= calls
    if is_out_of_calls:
        yield f"max_calls={2 * max(1, spent.calls)}"
    if usd is not None and not is_out_of_calls:
        whole = 2 * max(spent.usd + needed_usd, usd)
        if share_done and spent.usd:
            whole = ROOM * max(spent.usd / share_done + needed_usd, usd)
        yield f"budget_usd={_rounded_up(whole)}"


def _rounded_up(amount: float) -> str:
    """Return an amount of money with two significant digits, at least as large as it is."""
    if amount <= 0:
        return "1"
    digits = 1 - math.floor(math.log10(amount))
    return f"{math.ceil(round(amount * 10**digits, 6)) / 10**digits:.{max(0, digits)}f}"
