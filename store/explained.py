"""How to make a decision again: what it rests on, in SQL, files and settings."""

from collections.abc import Iterator, Sequence

import yaml

from store.decisions import Decision
from store.layout import Layout
from store.parquet import Store
from store.records import from_json

Section = tuple[str, Sequence[str]]

TABLES = ("experiments", "outputs", "scores")
"""What the figures come from."""


def explained(store: Store, decision: Decision) -> Iterator[Section]:
    """Each section with its lines."""
    yield "In the store", list(_identities(decision))
    yield "The rules, and what else was settled", list(_settings(decision))
    yield "The figures behind each rule, example by example (evalflows sql QUERY)", list(_queries(store, decision))
    yield "The files", list(_files(store, decision))


def values_query(metric: str, experiment: str) -> str:
    """SQL for a metric's value of each example of an experiment, repetitions averaged, and what it was asked of."""
    return (
        f"select x.example_id, avg(s.value) filter (s.status = 'scored') as value,"
        f" count(*) filter (s.status in ('failed', 'not_attempted')) as missing, any_value(x.inputs) as inputs,"
        f" any_value(x.reference_outputs) as reference_outputs"
        f" from (select experiment_id, example_id, metric, value, status from scores"
        f" where subject_kind = 'run' and turn is null"
        f" union all select experiment_id, example_id, metric, value, status from measures) s"
        f" join experiments e using (experiment_id)"
        f" join examples x on x.snapshot_id = e.snapshot_id and x.example_id = s.example_id"
        f" where s.experiment_id = {_text(experiment)} and s.metric = {_text(metric)} group by x.example_id"
    )


def pairs_query(metric: str, candidate: str, baseline: str) -> str:
    """The same of two experiments side by side: a row for each example that both have, with the same inputs and
    references."""
    return (
        f"select example_id, c.value as candidate, b.value as baseline, c.value - b.value as difference,"
        f" c.missing as candidate_missing, b.missing as baseline_missing"
        f" from ({values_query(metric, candidate)}) c join ({values_query(metric, baseline)}) b using (example_id)"
        f" where c.inputs = b.inputs and c.reference_outputs is not distinct from b.reference_outputs"
        f" order by example_id"
    )


def _identities(one: Decision) -> Iterator[str]:
    yield f"decision   {one.decision_id} of {one.decided_at:%Y-%m-%d %H:%M:%S} UTC"
    yield f"candidate  {one.candidate} ({one.candidate_experiment_id})"
    if one.baseline_experiment_id:
        yield f"baseline   {one.baseline} ({one.baseline_experiment_id})"
        yield f"examples   {one.n_shared} that both have, with the same inputs"


def _settings(one: Decision) -> Iterator[str]:
    commit = f", commit {one.git_commit[:12]}" if one.git_commit else ""
    yield f"level {one.level:g}: each interval covers the truth that often; evalflows {one.evalflows_version}{commit}"
    policy = {name: value for name, value in from_json(one.policy).items() if value not in (None, {}, [])}
    yield from yaml.safe_dump(policy, sort_keys=False, allow_unicode=True).splitlines()


def _queries(store: Store, one: Decision) -> Iterator[str]:
    yield f"select * from gate_rules where decision_id = {_text(one.decision_id)}"
    yield f"select * from verdicts where decision_id = {_text(one.decision_id)}"
    for metric, kinds in _kinds(one).items():
        if " pass" in metric:
            yield f"-- {metric}: made of repetitions, by the metric before it"
            continue
        if one.baseline_experiment_id and kinds & {"guard", "goal"}:
            yield f"-- {metric}, both sides{', all that has run' if one.looks else ''}"
            yield pairs_query(metric, one.candidate_experiment_id, one.baseline_experiment_id)
        if kinds & {"floor", "sure_floor"}:
            yield f"-- {metric}, the candidate's"
            yield values_query(metric, one.candidate_experiment_id)


def _kinds(one: Decision) -> dict[str, set[str]]:
    """The kinds of rule that there are on each metric."""
    found: dict[str, set[str]] = {}
    for rule in one.rules:
        found.setdefault(rule["metric"], set()).add(rule["rule"])
    return found


def _files(store: Store, one: Decision) -> Iterator[str]:
    layout: Layout = store.layout
    yield layout.sealed("decisions", one.decision_id)
    if one.baseline_experiment_id:
        yield layout.sealed("verdicts", one.decision_id)
    for identity in filter(None, (one.candidate_experiment_id, one.baseline_experiment_id)):
        for name in TABLES:
            sealed = store.is_sealed(name, identity)
            yield layout.sealed(name, identity) if sealed else f"{layout.open_folder(name, identity)}/*.parquet"


def _text(value: str) -> str:
    """A text in SQL."""
    return "'" + value.replace("'", "''") + "'"
