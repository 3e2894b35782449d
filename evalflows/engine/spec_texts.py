"""What is written into specs from files, so that versions and resumptions include it: prompts, and taxonomies of
failure modes with the rules on those that are closed.
"""

from collections.abc import Sequence
from typing import TypeVar

from evalflows.engine.spec_evaluators import is_ours
from evalflows.specs.errors import InputError
from evalflows.specs.evaluator import FallbackSpec, JudgeSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.failure_modes import CLOSED_MODES, TaxonomySpec, load_taxonomy
from evalflows.specs.files import located, make_spec
from evalflows.specs.gate import GateSpec
from evalflows.specs.traces import TraceEvaluationSpec

Judge = TypeVar("Judge", bound=FallbackSpec)
Cascaded = TypeVar("Cascaded", bound=JudgeSpec)

PROMPT_SUFFIXES = (".md", ".txt")
"""Suffixes by which a prompt is taken as a file name."""


def with_prompts(spec: ExperimentSpec) -> ExperimentSpec:
    """Replace the files of prompts and taxonomies by their contents, so that versions and resumptions include them.

    Raise InputError for a file that cannot be read.
    """
    judges = {
        name: [with_all_prompts(judge) for judge in getattr(spec, name)]
        for name in ("evaluators", "summary_evaluators")
    }
    if spec.compare is None:
        return spec.model_copy(update=judges)
    pairwise = [with_all_prompts(judge) for judge in spec.compare.evaluators]
    return spec.model_copy(update={**judges, "compare": spec.compare.model_copy(update={"evaluators": pairwise})})


def with_all_prompts(judge: Cascaded) -> Cascaded:
    """Replace the prompt and the taxonomy of an evaluator, its fallback and its tiers."""
    fallback = None if judge.fallback is None else with_texts(judge.fallback)
    tiers = [with_texts(tier) for tier in judge.tiers]
    return with_texts(judge).model_copy(update={"fallback": fallback, "tiers": tiers})


def with_texts(judge: Judge) -> Judge:
    """Replace the file of one evaluator's prompt by its text, and that of a taxonomy by what decides on its modes.

    Raise InputError if one is invalid.
    """
    args, prompt = dict(judge.args), judge.args.get("prompt")
    if (taxonomy := taxonomy_of(judge)) is not None:
        args["taxonomy"] = taxonomy.settings
    if is_ours(judge) and isinstance(prompt, str) and prompt.endswith(PROMPT_SUFFIXES) and "\n" not in prompt:
        try:
            args["prompt"] = located(prompt).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"evaluator {judge.metric!r}: prompt {prompt!r}: cannot be read: {reason}") from error
    return judge if args == judge.args else judge.model_copy(update={"args": args})


def taxonomy_of(judge: FallbackSpec) -> TaxonomySpec | None:
    """Return the taxonomy of an evaluator of failure modes; None of others. Raise InputError if it is invalid."""
    given = judge.args.get("taxonomy") if judge.use == "failure_modes" else None
    if isinstance(given, dict):
        return make_spec(TaxonomySpec, {**given}, [], f"evaluator {judge.metric!r}: taxonomy")
    return load_taxonomy(given) if isinstance(given, str) else None


def with_closed_modes(spec: ExperimentSpec) -> ExperimentSpec:
    """Replace `closed_modes` of gates by a rule for each mode that is closed now.

    Raise InputError for a gate that has no rule then.
    """
    if all(gate.closed_modes is None for gate in spec.gates):
        return spec
    closed = closed_modes_of(spec)
    return spec.model_copy(update={"gates": [_with_closed_modes(gate, closed) for gate in spec.gates]})


def with_closed_modes_watched(spec: TraceEvaluationSpec) -> TraceEvaluationSpec:
    """Replace a watch rule on `closed_modes` by one on each mode that is closed now."""
    if all(rule.metric != CLOSED_MODES for rule in spec.watch):
        return spec
    closed, watch = closed_modes_of(spec), []
    for rule in spec.watch:
        if rule.metric != CLOSED_MODES:
            watch.append(rule)
            continue
        for metric in closed:
            name = f"{rule.name} {metric}" if rule.name else ""
            watch.append(rule.model_copy(update={"metric": metric, "name": name}))
    return spec.model_copy(update={"watch": watch})


def closed_modes_of(spec: ExperimentSpec | TraceEvaluationSpec) -> list[str]:
    """Return the metrics of the modes that are closed. Raise InputError for an invalid taxonomy."""
    taxonomies = [taxonomy for judge in spec.evaluators if (taxonomy := taxonomy_of(judge))]
    return [metric for taxonomy in taxonomies for metric in taxonomy.closed]


def _with_closed_modes(gate: GateSpec, closed: Sequence[str]) -> GateSpec:
    if gate.closed_modes is None:
        return gate
    rules = dict.fromkeys(closed, gate.closed_modes.at_most) | gate.confident_thresholds
    ruled = gate.model_copy(update={"closed_modes": None, "confident_thresholds": rules})
    if not ruled.metrics:
        raise InputError(f"gate {gate.name!r}: closed_modes: no failure mode is closed, wanted one, or another rule")
    return ruled
