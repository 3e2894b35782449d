"""Decisions as one document that proves itself: rules, figures, and the scores that they rest on, without a text of the
data. Whoever has it decides again from it, without a store, a model or the data."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from evalflows.api.deciding import decide_results
from evalflows.harnesses.assembling import ResultRow, SystemResults
from evalflows.reports.decisions import Decision, decisions_named, with_limits
from evalflows.specs.errors import InputError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.files import read_regular
from evalflows.specs.frozen import dataclass
from evalflows.specs.gate import RULE_FIELDS
from evalflows.specs.metric_names import base_metric, sliced_metric
from evalflows.store.queries.shared_examples import slice_values
from evalflows.store.records import ExperimentRow, now
from evalflows.store.row_specs import experiment_spec, gate_spec
from evalflows.store.signatures import sign_text, signer_of
from evalflows.store.sql import ask
from evalflows.store.store import Store

FORMAT = 1

_FIGURES = ("rule", "metric", "bound", "outcome", "value", "low", "high", "n", "n_missing")

_OF_GATE = ("name", "adjustment", "min_examples", "only_shared")

_SCORES = """
select example_id, repetition, metric, case when status = 'scored' then value end from run_values
where experiment_id = $1 and list_contains($2, metric) order by all
"""

_EXAMPLES = """
select example_id, md5(concat_ws(chr(0), inputs, reference_outputs)), cluster from examples
where snapshot_id = $1 order by position
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What the check of a document found."""

    lines: Sequence[str]
    problem: str | None  # why it does not hold; None if it does
    signed_by: str | None


def evidence_of(store: Store, decision_ids: Sequence[str], key: Path | None = None) -> dict[str, Any]:
    """Return the document of decisions, signed with an SSH key if one is given.

    Raise InputError if the key cannot sign.
    """
    decisions = with_limits(store, decisions_named(store, decision_ids))
    content = {
        "evidence_format": FORMAT,
        "evalflows": version("evalflows"),
        "made_at": now().isoformat(),
        "decisions": [_document(store, decision) for decision in decisions],
    }
    text = _canonical(content)
    signature = None if key is None else sign_text(key, text)
    return {**content, "sha256": hashlib.sha256(text.encode()).hexdigest(), "signature": signature}


def verify(path: str, signers: Path | None = None) -> Verified:
    """Check a document: whether it is whole, whether its scores give its figures, and who signed it.

    Args:
        path: Its file.
        signers: A file of keys, as `ssh-keygen` takes allowed signers.

    Raise InputError if the file is no such document.
    """
    try:
        content = json.loads(read_regular(Path(path)))
        if (found := content["evidence_format"]) != FORMAT:
            raise InputError(f"{path}: got evidence of format {found}, wanted {FORMAT}")
        return _verified(content, content.pop("sha256"), content.pop("signature"), signers)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: got no evidence document, wanted a file that --evidence wrote") from error


def _verified(content: Mapping[str, Any], sha256: str, signature: str | None, signers: Path | None) -> Verified:
    if not content["decisions"]:
        raise ValueError("no decision")
    text = _canonical(content)
    if hashlib.sha256(text.encode()).hexdigest() != sha256:
        return Verified(lines=[], problem="it was changed: its hash differs", signed_by=None)
    signed_by = signer_of(text, signature, signers, content["made_at"]) if signature and signers else None
    lines, notes = list[str](), list[str]()
    for decision in content["decisions"]:
        name, again = f"gate {decision['gate']['name']}", _decided_again(decision)
        problem = again if isinstance(again, str) else _difference(decision, again)
        if problem is None and isinstance(again, Decision):
            lines += _lines(decision, [rule.text for rule in again.rules])
            notes.append(f"{name}: the scores of {len(decision['examples'])} examples give the same figures")
        elif not decision["is_recomputed"] and signed_by is not None:
            lines += _lines(decision, [rule["text"] for rule in decision["rules"]])
            notes.append(f"{name}: its figures rest on more than scores; the signature alone vouches for them")
        else:
            more = "" if decision["is_recomputed"] else "; figures beyond scores need a signature (--signers)"
            return Verified(lines=[], problem=f"{name}: {problem}{more}", signed_by=signed_by)
    if signed_by is None:
        notes.append(
            "names and limits are those that the document states: only a signature vouches for them (--signers)"
        )
    return Verified(lines=[*lines, *notes], problem=None, signed_by=signed_by)


def _canonical(content: Any) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _document(store: Store, decision: Decision) -> dict[str, Any]:
    (row,) = store.read("decisions", decision.decision_id)
    gate = gate_spec(row)
    sides = [decision.candidate_experiment_id, *filter(None, [decision.baseline_experiment_id])]
    experiments = [store.read("experiments", identity)[0] for identity in sides]
    spec = experiment_spec(experiments[0])
    named = {metric for kind in RULE_FIELDS for metric in getattr(gate, kind)}
    bases = sorted({base_metric(sliced_metric(metric).metric) for metric in named})
    examples = _examples(store, experiments, sorted({path for m in named if (path := sliced_metric(m).path)}), bases)
    document = {
        "gate": gate.model_dump(mode="json", include={*_OF_GATE, *RULE_FIELDS}),
        "metrics": {name: _declared(spec, name) for name in bases},
        "confidence_level": decision.confidence_level,
        "adjustment": spec.adjustment,
        "repetitions": max(one.repetitions for one in experiments),
        "systems": [{"name": one.target, "version": one.target_version, "n": one.n_examples} for one in experiments],
        "examples": examples,
        "conclusion": decision.conclusion,
        "title": decision.title,
        "rules": [rule.as_dict() for rule in decision.rules],
        "limits": list(decision.what_limits),
    }
    again = _decided_again(document)
    return {**document, "is_recomputed": isinstance(again, Decision) and _difference(document, again) is None}


def _declared(spec: ExperimentSpec, metric: str) -> dict[str, Any]:
    """Return what a spec declares of a metric, with a range of null; of a composite, the range that it always has."""
    declared = spec.direction(metric).model_dump(mode="json")
    is_composite = any(composite.name == metric and composite.weights for composite in spec.composites)
    return {**declared, "range": [0, 1]} if is_composite and declared["range"] is None else declared


def _examples(
    store: Store, experiments: Sequence[ExperimentRow], paths: Sequence[str], metrics: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the examples with the scores of each system. Their ids are hashes of ids, inputs and references."""
    found: dict[str, dict[str, Any]] = {}
    for number, experiment in enumerate(experiments):
        rows, scores = ask(
            store, (_EXAMPLES, [experiment.snapshot_id]), (_SCORES, [experiment.experiment_id, [*metrics]])
        )
        slices = [slice_values(store, experiment.snapshot_id, path) for path in paths]
        known = dict[str, dict[str, Any]]()
        for place, (example, content, cluster) in enumerate(rows):
            key = _hashed(f"{example}\0{content}")
            entry = found.setdefault(key, {"id": key, "scores": [{} for _ in experiments]})
            known[example] = entry["scores"][number]
            if cluster is not None:
                entry["cluster"] = _hashed(cluster)
            if paths:
                entry["slices"] = {path: values[place] for path, values in zip(paths, slices, strict=True)}
        for example, repetition, metric, value in scores:
            values = known[example].setdefault(metric, [])
            values += [None] * (repetition - len(values)) + [value]
    return list(found.values())


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _decided_again(document: Mapping[str, Any]) -> Decision | str:
    """Return the decision on a document's scores, or why there is none."""
    rules = {name: document[name] for name in ("metrics", "confidence_level", "adjustment", "repetitions")}
    gate, ids = document["gate"], [one["id"] for one in document["examples"]]
    if len({*ids}) < len(ids):
        return "it has an example twice"
    try:
        systems = [_system(document, number) for number in range(len(document["systems"]))][::-1]
        if not all(system.rows for system in systems):
            return "none of its rules rests on scores of examples"
        cluster = "cluster" if any("cluster" in one for one in document["examples"]) else None
        only_shared = gate.get("only_shared", True)  # as before gates had that
        (again,) = decide_results(None, systems, {**rules, "gates": [gate]}, cluster, only_shared=only_shared).decisions
    except (InputError, ValueError) as error:
        return f"the gate cannot decide on its scores: {error}"
    return again


def _difference(document: Mapping[str, Any], again: Decision) -> str | None:
    """Return how a decision from a document's scores differs from what it says; None if it does not."""
    if again.conclusion != document["conclusion"]:
        return f"its scores give {again.conclusion}, not {document['conclusion']}"
    figures = [{name: getattr(rule, name) for name in _FIGURES} for rule in again.rules]
    for there, here in zip(document["rules"], figures, strict=True):
        for name, value in here.items():
            if not _is_same(there[name], value):
                return f"its scores give {there['metric']} {name} {value}, not {there[name]}"
    return None


def _is_same(there: Any, here: Any) -> bool:
    if isinstance(there, float) and isinstance(here, float):
        return math.isclose(there, here, rel_tol=1e-9, abs_tol=1e-12)
    return bool(there == here)


def _system(document: Mapping[str, Any], number: int) -> SystemResults:
    rows = [*_rows(document["examples"], number)]
    return SystemResults(source=document["systems"][number]["name"], format="evidence", system=str(number), rows=rows)


def _rows(examples: Sequence[Mapping[str, Any]], number: int) -> Iterator[ResultRow]:
    for example in examples:
        scores = example["scores"][number]
        fields = {path.removeprefix("metadata."): value for path, value in example.get("slices", {}).items()}
        if "cluster" in example:
            fields["cluster"] = example["cluster"]
        for repetition in range(max(map(len, scores.values()), default=0)):
            of_repetition = {
                metric: values[repetition] for metric, values in scores.items() if repetition < len(values)
            }
            yield ResultRow(example_id=example["id"], repetition=repetition, scores=of_repetition, fields=fields)


def _lines(decision: Mapping[str, Any], texts: Sequence[str]) -> Iterator[str]:
    yield f"{decision['conclusion']}  {decision['title']}"
    yield from (f"  {rule['outcome']}  {text}" for rule, text in zip(decision["rules"], texts, strict=True))
    yield from (f"  limit  {limit}" for limit in decision["limits"])
