"""What is written into specs from files, so that versions and resumptions include it: prompts of targets and judges,
and taxonomies of failure modes with the rules on those that are closed."""

from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from textwrap import indent
from typing import Any, TypeVar

from evalflows.engine.spec_evaluators import is_ours
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.dialogue import PromptFile, SimulatedUser
from evalflows.specs.errors import InputError
from evalflows.specs.evaluator import FallbackSpec, JudgeSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.failure_modes import CLOSED_MODES, TaxonomySpec, load_taxonomy
from evalflows.specs.files import load_text, located, make_spec
from evalflows.specs.gate import GateSpec
from evalflows.specs.target import ChatTarget, ConversationTarget, TargetSpec
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.specs.watch import WatchSpec

Judge = TypeVar("Judge", bound=FallbackSpec)

PROMPT_SUFFIXES = (".md", ".txt")
"""Suffixes by which a prompt is taken as a file name."""


def fields_with_texts(spec: ExperimentSpec | ComparisonSpec | TraceEvaluationSpec) -> dict[str, Any]:
    """Return the fields of a spec with its prompts and taxonomies as texts, and with a rule for each mode that is now
    closed instead of `closed_modes` in gates and watch rules.

    Raise InputError for a file that cannot be read, and for a gate that has no rule then.
    """
    written: dict[str, Any] = {}
    if isinstance(spec, TraceEvaluationSpec):
        written["watch"] = [*_with_closed_modes_watched(spec.watch, spec.evaluators)]
    if isinstance(spec, ExperimentSpec):
        written["targets"] = [_with_prompts(target) for target in spec.targets]
        written["gates"] = [_with_closed_modes(gate, spec.evaluators) for gate in spec.gates]
        written["summary_evaluators"] = [_judge_with_texts(judge) for judge in spec.summary_evaluators]
        if spec.compare is not None:
            pairwise = [_judge_with_texts(judge) for judge in spec.compare.evaluators]
            written["compare"] = spec.compare.model_copy(update={"evaluators": pairwise})
    return {**written, "evaluators": [_judge_with_texts(judge) for judge in spec.evaluators]}


def _with_prompts(target: TargetSpec) -> TargetSpec:
    """Replace the files of a target's prompts by their texts. Raise InputError for a text that is the path of a file:
    sent as a prompt it would be no mistake that anybody sees."""
    if isinstance(target, ConversationTarget):
        user = target.user
        if isinstance(user, SimulatedUser):
            user = user.model_copy(update=_prompts(user, ("prompt",), f"target {target.name!r}: user"))
        return target.model_copy(update={"target": _with_prompts(target.target), "user": user})
    if not isinstance(target, ChatTarget):
        return target
    written = _prompts(target, ("system", "user", "messages"), f"target {target.name!r}")
    if not written:
        return target
    return make_spec(ChatTarget, target.model_dump() | written, [], f"target {target.name!r}")


def _prompts(holder: ChatTarget | SimulatedUser, names: Sequence[str], who: str) -> dict[str, Any]:
    """Return the texts of the prompts that are files, by the field."""
    written: dict[str, Any] = {}
    for name in names:
        given, where = getattr(holder, name), f"{who}: {name}"
        if isinstance(given, PromptFile):
            text = _text_of(given.file, f"{where}: file {given.file!r}").rstrip("\n")
            written[name] = _conversation(text, f"{where}: {given.file}") if name == "messages" else text
        elif isinstance(given, str) and _is_path(given):
            raise InputError(f"{where}: got the path of a file as the text, wanted {{file: {given}}}")
    return written


def _conversation(text: str, where: str) -> Any:
    """Return the messages of a file, in YAML or JSON. Raise InputError for anything else."""
    return load_text(f"messages:\n{indent(text, '  ')}", where, wanted="a list of {role, content}")["messages"]


def _is_path(text: str) -> bool:
    try:
        return "\n" not in text and Path(text).suffix != "" and located(text).is_file()
    except (InputError, OSError, ValueError):  # not to be named, too long for a path, or with a character that none has
        return False


def _text_of(path: str, where: str) -> str:
    try:
        return located(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{where}: cannot be read: {reason}") from error


def _judge_with_texts(judge: Judge) -> Judge:
    """Replace the file of the prompt of an evaluator, its fallback and its tiers by its text, and that of a taxonomy by
    what decides on its modes."""
    args, prompt, written = dict(judge.args), judge.args.get("prompt"), dict[str, Any]()
    if (taxonomy := _taxonomy(judge)) is not None:
        args["taxonomy"] = taxonomy.settings
    if is_ours(judge) and isinstance(prompt, str) and prompt.endswith(PROMPT_SUFFIXES) and "\n" not in prompt:
        args["prompt"] = _text_of(prompt, f"evaluator {judge.metric!r}: prompt {prompt!r}")
    if isinstance(judge, JudgeSpec):
        written["fallback"] = None if judge.fallback is None else _judge_with_texts(judge.fallback)
        written["tiers"] = [_judge_with_texts(tier) for tier in judge.tiers]
    return judge.model_copy(update={**written, "args": args})


def _taxonomy(judge: FallbackSpec) -> TaxonomySpec | None:
    """Return the taxonomy of an evaluator of failure modes; None of others. Raise InputError if it is invalid."""
    given = judge.args.get("taxonomy") if judge.use == "failure_modes" else None
    if isinstance(given, dict):
        return make_spec(TaxonomySpec, {**given}, [], f"evaluator {judge.metric!r}: taxonomy")
    return load_taxonomy(given) if isinstance(given, str) else None


def _closed_modes(judges: Sequence[FallbackSpec]) -> dict[str, date | None]:
    """Return since when modes are closed, by their metrics. Raise InputError for an invalid taxonomy."""
    return {metric: day for judge in judges if (found := _taxonomy(judge)) for metric, day in found.closed.items()}


def _with_closed_modes(gate: GateSpec, judges: Sequence[FallbackSpec]) -> GateSpec:
    if gate.closed_modes is None:
        return gate
    rules = dict.fromkeys(_closed_modes(judges), gate.closed_modes.at_most) | gate.confident_thresholds
    ruled = gate.model_copy(update={"closed_modes": None, "confident_thresholds": rules})
    if not ruled.metrics:
        raise InputError(f"gate {gate.name!r}: closed_modes: no failure mode is closed, wanted one, or another rule")
    return ruled


def _with_closed_modes_watched(rules: Sequence[WatchSpec], judges: Sequence[FallbackSpec]) -> Iterator[WatchSpec]:
    for rule in rules:
        if rule.metric != CLOSED_MODES:
            yield rule
            continue
        for metric, since in _closed_modes(judges).items():
            name = f"{rule.name} {metric}" if rule.name else ""
            yield rule.model_copy(update={"metric": metric, "name": name, "since": rule.since or since})
