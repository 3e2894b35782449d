"""Decide on results that any harness wrote: they are tested and decided as runs are, in memory or as experiments that a
store keeps."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from evalflows.analysis.differences import ExperimentPair, MetricReader, publish_differences
from evalflows.analysis.gate_evaluation import GateEvaluation, keep_decision
from evalflows.api.in_memory import ScoresInMemory, ScoresReader, limits_of_alike
from evalflows.harnesses.assembling import Format, ResultRow, SystemResults, assembled
from evalflows.harnesses.formats import read_table
from evalflows.harnesses.recording import Recorded, check_field, is_without_inputs, keep, names_of, recorded, values_of
from evalflows.reports.decisions import Decision, decisions_named, with_limits
from evalflows.specs.errors import InputError, names_to_choose, short
from evalflows.specs.frozen import dataclass
from evalflows.specs.gate import RULE_FIELDS, GateSpec, any_rise
from evalflows.specs.metric_names import kept_apart, sliced_metric
from evalflows.specs.values import identifier, stored
from evalflows.store.queries.conclusions import approvals
from evalflows.store.queries.shared_examples import check_slices
from evalflows.store.records import ExperimentRow, from_json
from evalflows.store.row_specs import experiment_spec
from evalflows.store.sql import ask
from evalflows.store.store import Store

if TYPE_CHECKING:
    from evalflows.reports.experiment_report import ExperimentsReport
    from evalflows.reports.markdown_pages import GateReport

RULES = ("gates", "metrics", "composites", "confidence_level", "adjustment")
"""Fields of a spec that say how to decide."""

OWN, OPTIONS = "decide", {"non_inferiority": "--metric", "superiority": "--superiority", "thresholds": "--threshold"}
"""The gate of the command's own options, and the option of each of its rules."""

APPROVED = "approved:"
"""What a source begins with that is a baseline of the store."""

_STORE = "store"
"""The format of such a baseline's results."""

_OF_STORES = ("batch", "baseline", "approved_by", "signers")
"""Fields of a gate that only a store answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The experiments of results, and what was decided on them."""

    recorded: Recorded
    decisions: Sequence[Decision]  # with what limits them
    # The latter without a gate. True: with all examples that got worse.
    report: "Callable[[bool], GateReport | ExperimentsReport]"


@contextmanager
def store_for(root: str | None, *, is_needed: bool = True) -> Iterator[Store | None]:
    """Yield the store at a place; without one, a temporary one, which is removed at the end, if it is needed."""
    if root is None and not is_needed:
        yield None
        return
    place = nullcontext(root) if root is not None else tempfile.TemporaryDirectory(prefix="evalflows-")
    with place as folder:
        yield Store(folder)


def needs_store(rules: Mapping[str, Any]) -> bool:
    """Return whether a gate has what only a store answers."""
    return any(gate.get(name) for gate in rules.get("gates") or () for name in _OF_STORES)


def decide_results(
    store: Store | None,
    systems: Sequence[SystemResults],
    rules: Mapping[str, Any],
    cluster: str | None = None,
    slices: Sequence[str] = (),
    *,
    directions: Mapping[str, bool] = MappingProxyType({}),
    only_shared: bool = False,
    where: str = "rules",
) -> Decided:
    """Decide the gates of `rules` on results of systems, the first of which is the baseline; keep all of it in a store,
    if there is one.

    `slices` are fields for each of whose values the rules hold too, and `directions` say of metrics, by the names that
    options give, whether higher is better. Examples that a candidate lacks are missing, with `only_shared` left out.
    Without `cluster`, a baseline of the store has the clusters of its dataset. `where` is where the rules are from.
    Raise InputError for results that cannot be compared, and for rules on metrics or slices, and directions of metrics,
    that they do not have.
    """
    if cluster is None and systems[0].format == _STORE and any(_CLUSTER in row.fields for row in systems[0].rows):
        cluster = _CLUSTER
    for field in slices:
        rules = {**rules, "gates": [_within(gate, systems, field) for gate in rules.get("gates", ())]}
    declared = rules.get("metrics") or {}
    given = {
        (metric := kept_apart(name)): {**declared.get(metric, {}), "higher_is_better": is_higher}
        for name, is_higher in directions.items()
    }
    gates = [{**gate, "only_shared": True} if only_shared else gate for gate in rules.get("gates") or ()]
    only_shared = only_shared or (bool(gates) and all(gate.get("only_shared") for gate in gates))
    rules = {**rules, "gates": gates, "metrics": {**declared, **given}}
    made = recorded(systems, rules, cluster=cluster, only_shared=only_shared, where=where)
    spec, rows = made.spec, made.rows
    if spec.composites:
        from evalflows.api.composites import with_composites  # late: few rules have them

        made = replace(made, systems=with_composites(made.systems, spec))
    if not spec.gates:  # else it limits decisions
        alike = limits_of_alike(made.systems[0].examples)
        made = replace(made, notes=[*made.notes, *alike])
    named = [kept_apart(name) for system in made.systems for name in system.results.metrics]
    for name, is_higher in directions.items():
        _check_metric(f"--{'higher' if is_higher else 'lower'}-is-better", kept_apart(name), named)
    baseline, candidates = (rows[0], rows[1:]) if rows[1:] else (None, rows)
    scores = ScoresReader(made.systems)
    reader = scores if store is None else MetricReader(store)
    if store is not None:
        keep(store, made)
        publish_differences(store, reader, rows, spec)
    known = [metric for row in rows for metric in reader.values(row, spec)]
    evaluations = []
    for gate in spec.gates:
        _check_metrics(gate, known)
        for candidate in candidates:
            check_slices([gate], reader.examples(candidate.snapshot_id))
            pair = ExperimentPair(reader=reader, spec=spec, candidate=candidate, baseline=baseline)
            evaluations.append(GateEvaluation(gate=gate, pair=pair))
    if store is None:
        alone = ScoresInMemory(reader=scores, made=made, evaluations=evaluations)
        return Decided(recorded=made, decisions=alone.decisions, report=alone.report)
    decisions = with_limits(store, decisions_named(store, [keep_decision(store, e).decision_id for e in evaluations]))
    return Decided(recorded=made, decisions=decisions, report=partial(_report, store, decisions, rows))


_APPROVED = """
select example_id, repetition, metric, value, error from run_values
where experiment_id = ? and evaluator <> 'measured' and status in ('scored', 'failed')
"""

_OF_EXAMPLES = ("inputs", "reference", "metadata")
_EXAMPLES = """
select example_id, cluster, inputs::varchar, reference_outputs::varchar, metadata::varchar
from examples where snapshot_id = ?
"""


def approved_results(name: str) -> tuple[list[SystemResults], dict[str, dict[str, bool]]]:
    """Return the scores of the experiment that the store has as this baseline, with its examples, and the directions of
    its metrics.

    Raise InputError if no experiment is approved by that name, or if it has no scores.
    """
    store, source = Store(), f"{APPROVED}{name}"
    approval = next((one for one in approvals(store) if one.name == name and one.holds), None)
    experiments = [] if approval is None else store.read("experiments", approval.experiment_id)
    if not experiments:
        raise InputError(f"{source}: got no approved experiment of that name in {store.layout.root}, wanted one")
    found, examples = ask(store, (_APPROVED, [experiments[0].experiment_id]), (_EXAMPLES, [experiments[0].snapshot_id]))
    known = {one: dict(zip(_OF_EXAMPLES, map(from_json, columns), strict=True)) for one, _, *columns in examples}
    for one, cluster, *_ in examples:
        if cluster is not None:
            known[one]["metadata"] = {**(known[one]["metadata"] or {}), _CLUSTER: cluster}
    for one, example in known.items():
        if is_without_inputs(one, example["inputs"]):
            example["inputs"] = None
    rows = [
        {"scores": {metric: value}, "id": one, "repetition": number, "error": error, "reasons": {metric: error}}
        | known[one]
        for one, number, metric, value, error in found
    ]
    if not rows:
        raise InputError(f"{source}: got no scores in {experiments[0].experiment_id}, wanted some")
    declared = experiment_spec(experiments[0]).metrics
    directions = {one: spec.higher_is_better for one, spec in declared.items() if spec.higher_is_better is not None}
    results = [*assembled(rows, Format(_STORE, "", read_table), source)]
    return results, {one: {"higher_is_better": value} for one, value in directions.items()}


def _report(
    store: Store, decisions: Sequence[Decision], rows: Sequence[ExperimentRow], is_whole: bool
) -> "GateReport | ExperimentsReport":
    from evalflows.reports.experiment_report import experiments_report
    from evalflows.reports.markdown_pages import gate_report
    from evalflows.reports.results import results_of

    ids = [row.experiment_id for row in rows]
    if decisions:
        of_gates = gate_report(store, decisions)
        reports = [_with_all_worst(store, report) for report in of_gates.reports] if is_whole else of_gates.reports
        return replace(of_gates, reports=reports)
    report = experiments_report(store, ids, results_of(store, ids))
    return _with_all_worst(store, report) if is_whole else report


def _with_all_worst(store: Store, report: "ExperimentsReport") -> "ExperimentsReport":
    """Return a report with all examples that got worse by the metric of which it has some."""
    from evalflows.reports.worst import all_worst

    if report.worst is None:
        return report
    examples = [
        found
        for one in report.worst.examples
        for found in all_worst(store, [one.experiment_id], [one.metric], one.baseline_experiment_id, hidden=frozenset())
    ]
    return replace(report, worst=replace(report.worst, examples=examples))


def decide(
    baseline: Any,
    candidate: Any,
    margin: float | Mapping[str, float] | None = None,
    *,
    superiority: Mapping[str, float] | None = None,
    thresholds: Mapping[str, float] | None = None,
    metrics: Mapping[str, Mapping[str, Any]] | None = None,
    clusters: Mapping[Any, Any] | Sequence[Any] | str | None = None,
    only_shared: bool = False,
    store: str | None = None,
) -> Decision:
    """Decide whether a candidate may replace a baseline, on scores that you have.

    Args:
        baseline: Scores: a mapping of id to score (a list for repetitions), an array or a list (by position), a
            Series (its index), a DataFrame (its column `id`, or its index; numbers are metrics), rows, or the path of a
            file of results.
        candidate: The same.
        margin: How much the candidate may be worse, of all metrics or by metric (non-inferiority).
        superiority: By how much it must be better, by metric.
        thresholds: What its mean must reach, by metric.
        metrics: What is known of metrics, as in a spec: `{"cost": {"higher_is_better": False, "range": [0, 2]}}`.
        clusters: The group of each example, if examples belong together: by id, by position, or the name of a column.
        only_shared: Whether examples of the baseline that the candidate lacks are left out. Default: they are missing.
        store: The folder of a store that keeps all of it. Default: nothing is kept.

    Raise InputError for results that cannot be read or compared, and without any rule.
    """
    sides = [_system(side, name) for side, name in ((baseline, "baseline"), (candidate, "candidate"))]
    cluster = clusters if clusters is None or isinstance(clusters, str) else _CLUSTER
    if clusters is not None and not isinstance(clusters, str):
        groups = _groups(clusters, sides)
        sides = [_with_clusters(side, groups) for side in sides]
    names = dict.fromkeys(metric for side in sides for metric in side.metrics)
    margins = dict.fromkeys(names, margin) if isinstance(margin, int | float) else dict(margin or {})
    rules = {"non_inferiority": margins, "superiority": superiority, "thresholds": thresholds}
    gate = {kind: dict(rule) for kind, rule in rules.items() if rule}
    if not gate:
        raise InputError("decide: got no rule, wanted margin, superiority or thresholds")
    given = {"gates": [{"name": "release", **gate}], "metrics": {**(metrics or {})}}
    with store_for(store, is_needed=False) as kept:
        (decision,) = decide_results(kept, sides, given, cluster, only_shared=only_shared).decisions
    return decision


_CLUSTER = "cluster"


def _within(gate: Mapping[str, Any], systems: Sequence[SystemResults], field: str) -> dict[str, Any]:
    """Return a gate whose rules hold for each value of a field too. Raise InputError for a field of no row."""
    check_field("slice", systems, field)
    values = values_of(systems, field)
    path, within = f"metadata.{field}", dict[str, Any]()
    for kind in RULE_FIELDS:
        rule = any_rise(gate.get(kind)) if kind == "superiority" else gate.get(kind)
        if isinstance(rule, Mapping):
            whole = {metric: bound for metric, bound in rule.items() if sliced_metric(metric).path is None}
            sliced = {f"{metric}@{path}={value}": bound for metric, bound in whole.items() for value in values}
            within[kind] = {**rule, **sliced}
    return {**gate, **within}


def _check_metrics(gate: GateSpec, known: Sequence[str]) -> None:
    rules = [(kind, metric) for kind in RULE_FIELDS for metric in getattr(gate, kind)]
    for kind, metric in rules:
        where = OPTIONS[kind] if gate.name == OWN and kind in OPTIONS else f"gate {gate.name!r}: {kind}:"
        _check_metric(where, sliced_metric(metric).metric, known)


def _check_metric(where: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        raise InputError(f"{where} {name}: got no such metric, wanted {names_to_choose(name, known)}")


def _system(side: Any, name: str) -> SystemResults:
    """Return scores in any of the forms that `decide` takes as results of a system."""
    if hasattr(side, "to_frame") and hasattr(side, "index"):
        side = side.to_frame("score")  # a Series, which has ids as a DataFrame has
    if hasattr(side, "to_dict") and hasattr(side, "columns"):
        side = (side if "id" in side.columns else side.rename_axis("id").reset_index()).to_dict("records")
    if hasattr(side, "tolist"):
        side = side.tolist()
    if isinstance(side, str | Path):
        from evalflows.harnesses.reading import read_results  # late: scores need no reader

        found = read_results(str(side))
    elif isinstance(side, list) and side and all(isinstance(row, Mapping) for row in side):
        rows = [*read_table([{"id": str(position), **row} for position, row in enumerate(side)], name)]
        found = [*assembled(rows, Format("scores", "", read_table), name)]
    elif isinstance(side, Mapping | Sequence) and side:
        found = [SystemResults(source=name, format="scores", system=name, rows=[*_rows(side, name)])]
    else:
        got = "no scores" if isinstance(side, Mapping | Sequence) else short(side)
        raise InputError(f"{name}: got {got}, wanted at least one: by id, an array, rows or a file")
    if len(found) != 1:
        raise InputError(f"{name}: got {len(found)} systems, wanted one: {', '.join(names_of(found))}")
    return found[0]


def _rows(scores: Mapping[Any, Any] | Sequence[Any], name: str) -> Iterator[ResultRow]:
    for identity, value in scores.items() if isinstance(scores, Mapping) else enumerate(scores):
        for repetition, score in enumerate(value if isinstance(value, list | tuple) else [value]):
            yield ResultRow(example_id=str(identity), repetition=repetition, scores={"score": _score(score, name)})


def _score(value: Any, name: str) -> float | None:
    plain = stored(value, name)
    if plain is None:
        return None
    if not isinstance(plain, bool | int | float):
        raise InputError(f"{name}: got {short(plain)}, wanted a score: a number, true or false, or None")
    return float(plain)


def _groups(clusters: Any, sides: Sequence[SystemResults]) -> dict[str, Any]:
    """Return the group of each example by id. Raise InputError for an id without one."""
    if hasattr(clusters, "to_dict"):
        clusters = clusters.to_dict()
    if hasattr(clusters, "tolist"):
        clusters = clusters.tolist()
    if not isinstance(clusters, Mapping | list | tuple):
        raise InputError(f"clusters: got {short(clusters)}, wanted groups by id or by position, or a column's name")
    by_key = clusters.items() if isinstance(clusters, Mapping) else enumerate(clusters)
    groups = {identifier(key, "clusters: id"): group for key, group in by_key}
    ids = dict.fromkeys(row.example_id for side in sides for row in side.rows)
    if lacking := [one for one in ids if one not in groups]:
        got = f"no group of {len(lacking)} of {len(ids)} ids, such as {lacking[0]!r}"
        raise InputError(f"clusters: got {got}, wanted one of each (None: a group of its own)")
    return {one: groups[one] for one in ids}


def _with_clusters(side: SystemResults, groups: Mapping[str, Any]) -> SystemResults:
    rows = [replace(row, fields={**row.fields, _CLUSTER: groups[row.example_id]}) for row in side.rows]
    return replace(side, rows=rows)
