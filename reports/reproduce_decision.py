"""How to reproduce a decision: its data as SQL queries and files, and its settings."""

from collections.abc import Iterator, Sequence

import yaml

from evalflows.reports.decisions import Decision
from evalflows.reports.sql_text import sql_text
from evalflows.specs.metric_names import is_pass_k
from evalflows.specs.metric_slices import metric_of, sliced_metric
from evalflows.store.parquet import Store
from evalflows.store.records import from_json

Section = tuple[str, Sequence[str]]

TABLES = ("experiments", "outputs", "scores")
"""The tables that the figures are computed from."""


def explained(store: Store, decision: Decision) -> Iterator[Section]:
    """Yield each section with its lines."""
    yield "In the store", list(_identities(decision))
    yield "Rules and settings", list(_settings(decision))
    yield "The data behind each rule, by example (evalflows sql QUERY)", list(_queries(store, decision))
    yield "The files", list(_files(store, decision))


def values_query(name: str, experiment: str) -> str:
    """Return SQL for a metric's value per example of an experiment, averaged over repetitions, with the example; of a
    slice only its examples."""
    metric, path, value = sliced_metric(name)
    within = "" if path is None else f" and {_column(path)} = {sql_text(value or '')}"
    return (
        f"select x.example_id, avg(s.value) filter (s.status = 'scored') as value,"
        f" count(*) filter (s.status in ('failed', 'not_attempted')) as missing, any_value(x.inputs) as inputs,"
        f" any_value(x.reference_outputs) as reference_outputs"
        f" from run_values s"
        f" join experiments e using (experiment_id)"
        f" join examples x on x.snapshot_id = e.snapshot_id and x.example_id = s.example_id"
        f" where s.experiment_id = {sql_text(experiment)} and s.metric = {sql_text(metric)}{within}"
        f" group by x.example_id"
    )


def _column(path: str) -> str:
    """Return SQL for the value of an example at a path such as `split` or `metadata.topic`, as text."""
    column, *fields = path.split(".")
    inside = ".".join(f'"{field}"' for field in fields)
    return f"x.{column}" if not fields else f"(x.{column}::json ->> {sql_text(f'$.{inside}')})"


def pairs_query(metric: str, candidate: str, baseline: str) -> str:
    """Return the same SQL for two experiments side by side: one row per example that both have, with the same inputs
    and references."""
    return (
        f"select example_id, c.value as candidate, b.value as baseline, c.value - b.value as difference,"
        f" c.missing as candidate_missing, b.missing as baseline_missing"
        f" from ({values_query(metric, candidate)}) c join ({values_query(metric, baseline)}) b using (example_id)"
        f" where c.inputs = b.inputs and c.reference_outputs is not distinct from b.reference_outputs"
        f" order by example_id"
    )


def _identities(decision: Decision) -> Iterator[str]:
    yield f"decision   {decision.decision_id} of {decision.decided_at:%Y-%m-%d %H:%M:%S} UTC"
    yield f"candidate  {decision.candidate_apart} ({decision.candidate_experiment_id})"
    if decision.baseline_experiment_id:
        yield f"baseline   {decision.baseline_apart} ({decision.baseline_experiment_id})"
        yield f"examples   {decision.n_shared} shared, with the same inputs"
    elif decision.baseline:
        yield f"baseline   {decision.baseline}"
    yield f"manifest   {decision.manifest_sha256 or 'none that names its evidence'}"


def _settings(decision: Decision) -> Iterator[str]:
    commit = f", commit {decision.git_commit[:12]}" if decision.git_commit else ""
    yield f"confidence level {decision.confidence_level:g}; evalflows {decision.evalflows_version}{commit}"
    policy = {name: value for name, value in from_json(decision.policy).items() if value not in (None, {}, [])}
    yield from yaml.safe_dump(policy, sort_keys=False, allow_unicode=True).splitlines()


def _queries(store: Store, decision: Decision) -> Iterator[str]:
    yield f"select * from gate_rules where decision_id = {sql_text(decision.decision_id)}"
    yield f"select * from verdicts where decision_id = {sql_text(decision.decision_id)}"
    for metric, kinds in _kinds(decision).items():
        if is_pass_k(metric_of(metric)):
            yield f"-- {metric}: computed from the repetitions of its base metric"
            continue
        if decision.baseline_experiment_id and kinds & {"non_inferiority", "superiority"}:
            later = ", including later runs" if decision.interim_analyses else ""
            yield f"-- {metric}, candidate and baseline{later}"
            yield pairs_query(metric, decision.candidate_experiment_id, decision.baseline_experiment_id)
        if kinds & {"threshold", "confident_threshold"}:
            yield f"-- {metric}, candidate"
            yield values_query(metric, decision.candidate_experiment_id)


def _kinds(decision: Decision) -> dict[str, set[str]]:
    """Return the kinds of rules on each metric."""
    kinds: dict[str, set[str]] = {}
    for rule in decision.rules:
        kinds.setdefault(rule["metric"], set()).add(rule["rule"])
    return kinds


def _files(store: Store, decision: Decision) -> Iterator[str]:
    yield _file(store, "decisions", decision.decision_id)
    if decision.baseline_experiment_id:
        yield _file(store, "verdicts", decision.decision_id)
    for identity in filter(None, (decision.candidate_experiment_id, decision.baseline_experiment_id)):
        yield from (_file(store, name, identity) for name in TABLES)


def _file(store: Store, table: str, owner: str) -> str:
    return store.sealed_file(table, owner) or f"{store.layout.open_folder(table, owner)}/*.parquet"
