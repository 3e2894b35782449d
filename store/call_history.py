"""What model calls took so far: how many there were a run or a judgement, how many tokens, what they cost."""

from collections.abc import Iterable
from dataclasses import dataclass

from store.parquet import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class PastCalls:
    """The mean of calls that were paid."""

    calls: int
    tokens_in: float
    tokens_out: float
    usd: float | None  # None where the price of one is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How often a model was asked, the ledger's answers with it."""

    times: int  # runs, or judgements
    calls_each: float


def calls_of_target(store: Store, version: str) -> PastCalls | None:
    """Those of a target of this version; None where there is none that says its tokens."""
    of = (
        "evaluator is null and experiment_id in (select experiment_id from source.experiments where target_version = ?)"
    )
    return _past(store, of, version)


def calls_of_judge(store: Store, name: str, version: str) -> PastCalls | None:
    """Those of an evaluator of this name and version, of one answer or of two."""
    of = """evaluator = ? and experiment_id in (
                select experiment_id from source.experiments where contains(evaluators, ?)
                union all select comparison_id from source.comparison_sets where contains(evaluators, ?))"""
    return _past(store, of, name, version, version)


def calls_to_model(store: Store, base_url: str, model: str, *, by_target: bool) -> PastCalls | None:
    """Those to this model on this connection that targets made, or evaluators. `base_url` is as the ledger has it."""
    of = f"base_url = ? and model = ? and evaluator is {'null' if by_target else 'not null'}"
    return _past(store, of, base_url, model)


def asked_by_target(store: Store, version: str) -> Asked | None:
    """How often a target of this version asked a model, a run."""
    query = """select count(*), sum(calls + calls_cached) from source.outputs
               where status in ('ok', 'failed') and reused_from is null
                 and experiment_id in (select experiment_id from source.experiments where target_version = ?)"""
    return _asked(store, query, version)


def asked_by_judge(store: Store, name: str, version: str) -> Asked | None:
    """How often an evaluator of this name and version asked a model, a judgement of one answer or of all."""
    query = """select count(distinct subject_id), sum(calls + calls_cached) from source.scores
               where evaluator = ? and evaluator_version = ? and status in ('scored', 'failed', 'not_applicable')
                 and coalesce(error_kind, '') <> 'no_output'"""
    return _asked(store, query, name, version)


def asked_by_pairwise(store: Store, name: str, version: str) -> Asked | None:
    """The same of an evaluator of two answers."""
    query = """select count(distinct (left_run_id, right_run_id, shown_first)), sum(calls + calls_cached)
               from source.comparisons where evaluator = ? and evaluator_version = ? and decided_by is null
                 and status in ('scored', 'failed', 'not_applicable')"""
    return _asked(store, query, name, version)


def in_ledger(store: Store, keys: Iterable[str]) -> int:
    """Of some calls, each by its key, how many are there and may be used again."""
    query = """select count(distinct call_key) from source.calls
               where reusable and call_key in (select unnest(?::varchar[]))"""
    return int(store.query(query, [[*keys]])[0][0])


def _past(store: Store, of: str, *given: str) -> PastCalls | None:
    query = f"""select count(*), avg(tokens_in), avg(coalesce(tokens_out, 0)),
                       case when count(cost_usd) = count(*) then avg(cost_usd) end
                from source.calls where status = 'ok' and tokens_in is not null and {of}"""
    calls, into, out, usd = store.query(query, given)[0]
    return PastCalls(calls=calls, tokens_in=into, tokens_out=out, usd=usd) if calls else None


def _asked(store: Store, query: str, *given: str) -> Asked | None:
    times, calls = store.query(query, given)[0]
    return Asked(times=times, calls_each=float(calls or 0) / times) if times else None
