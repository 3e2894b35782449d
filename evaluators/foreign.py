"""Adapter for autoevals: objects with `eval(output, expected, **more)`, or their classes."""

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from evalflows.evaluators.foreign.judge import Adapted, version_values
from evalflows.evaluators.foreign.names import evaluator_name
from evalflows.evaluators.score import Score
from evalflows.evaluators.subject import ExampleView, RunView, unwrapped
from evalflows.specs.reference import comes_from

PACKAGE = "autoevals"

_ALWAYS = ("input", "output", "expected", "metadata")
_WITHOUT_REFERENCE = ("ValidJSON", "Moderation", "ContextRelevancy", "Faithfulness", "AnswerRelevancy")
_TAG = re.compile(r"\{\{\{?\s*([#^&]?)\s*([A-Za-z_]\w*)")


def recognises(evaluator: object) -> bool:
    return comes_from(evaluator, PACKAGE) and callable(getattr(evaluator, "eval", None))


def split_settings(kind: type, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings for a class's constructor, and those for each call, such as `criteria`."""
    accepted = {name for base in kind.__mro__ for name in _parameters(base.__dict__.get("__init__"))}
    accepted |= {name for base in kind.__mro__ for name in _parameters(base.__dict__.get("__new__"))}
    per_call = _parameters(getattr(kind, "_run_eval_sync", None))
    initial = {name: value for name, value in settings.items() if name in accepted}
    return initial, {name: value for name, value in settings.items() if name not in initial or name in per_call}


def adapt(scorer: Any, settings: dict[str, Any], where: str) -> Adapted:
    """Adapt a scorer. Its `output`, `input` and `expected` are the values before they were wrapped.

    Other names in its signature or template are filled from the settings, else from fields of the inputs or the
    metadata; `context` can also be a field of the answer. A scorer that needs a reference does not apply to an example
    without one. It is awaited if its client is async. As in direct calls, it cannot see which field of an answer is
    meant.
    """
    arguments, compares = _argument_builder(scorer, settings), _compares(scorer)

    def judge(example: ExampleView, run: RunView) -> list[Any]:
        if compares and example.reference_outputs is None:
            return []
        return _scores(scorer.eval(**arguments(example, run)))

    async def judge_async(example: ExampleView, run: RunView) -> list[Any]:
        if compares and example.reference_outputs is None:
            return []
        return _scores(await scorer.eval_async(**arguments(example, run)))

    is_async = any(_is_async(client) for client in _clients(scorer))
    parts = [evaluator_name(scorer), version_values(scorer), version_values(_partial(scorer)), version_values(settings)]
    return Adapted(judge=judge_async if is_async else judge, parts=parts, is_share=True)


def _argument_builder(scorer: Any, settings: dict[str, Any]) -> Callable[[ExampleView, RunView], dict[str, Any]]:
    """Return a function that builds the arguments of a call. It raises ValueError if a template's name has no value."""
    fields, second = _fields(scorer), _second(scorer)
    needed = () if _has_sections(scorer) else _template_names(scorer)

    def arguments(example: ExampleView, run: RunView) -> dict[str, Any]:
        standard = {
            "output": unwrapped(run.outputs, "output"),
            "expected": example.expected_output if second == "expected" else getattr(scorer, second, None),
            "input": example.input,
            "metadata": example.metadata,
        }
        extra = _looked_up(fields - {second}, example, run) | settings
        if second in extra:
            standard["expected"] = extra.pop(second)
        if missing := [name for name in needed if name not in {*standard, *extra, *_rendered(scorer)}]:
            raise ValueError(
                f"asks for {missing[0]!r}, wanted it under args, or as a field of the inputs or the metadata"
            )
        return standard | extra

    return arguments


def _scores(given: Any) -> list[Any]:
    """Convert a score. A score of None means that the scorer does not apply."""
    error = getattr(given, "error", None)
    if error is not None:
        raise error if isinstance(error, Exception) else RuntimeError(str(error))
    if not hasattr(given, "score"):
        return [given]
    metadata = getattr(given, "metadata", None) or {}
    return [Score(key=given.name, value=given.score, comment=metadata.get("rationale"), metadata=metadata or None)]


def _parameters(function: Any) -> set[str]:
    if not inspect.isfunction(function) and not isinstance(function, staticmethod):
        return set()
    parameters = inspect.signature(function).parameters.values()
    return {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)} - {"self", "cls"}


def _second(scorer: Any) -> str:
    """Return the scorer's name for its second positional argument, our `expected`; for ValidJSON it is the schema."""
    parameters = list(inspect.signature(scorer._run_eval_sync).parameters.values())
    named = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    return named[1] if len(named) > 1 else "expected"


def _fields(scorer: Any) -> set[str]:
    """Return the names that a scorer asks for besides those it always gets."""
    return {*_parameters(type(scorer)._run_eval_sync), *_template_names(scorer)} - {*_ALWAYS, *_rendered(scorer)}


def _looked_up(names: Iterable[str], example: ExampleView, run: RunView) -> dict[str, Any]:
    values = {}
    for name in names:
        answer = run.outputs if name == "context" else None  # otherwise a target could influence how it is judged
        for source in (example.inputs, example.metadata, answer or {}):
            if name in source:
                values[name] = source[name]
                break
    return values


def _template(scorer: Any) -> str:
    messages = getattr(scorer, "messages", None) or []
    return "\n".join(str(message.get("content", "")) for message in messages if isinstance(message, Mapping))


def _template_names(scorer: Any) -> set[str]:
    return {name for _, name in _TAG.findall(_template(scorer))}


def _has_sections(scorer: Any) -> bool:
    """Return whether the template has conditional or repeated sections; its names are then not all required."""
    return any(kind in ("#", "^") for kind, _ in _TAG.findall(_template(scorer)))


def _rendered(scorer: Any) -> set[str]:
    return {"__choices", *(getattr(scorer, "render_args", None) or {}), *_partial(scorer)}


def _partial(scorer: Any) -> dict[str, Any]:
    return dict(scorer._partial_args()) if hasattr(scorer, "_partial_args") else {}


def _compares(scorer: Any) -> bool:
    """Return whether a scorer needs a reference, by its template or else its name; a user's own scorer never does."""
    if _template(scorer):
        return "expected" in _template_names(scorer)
    own = str(type(scorer).__module__).partition(".")[0] == PACKAGE
    return own and "expected" not in _partial(scorer) and evaluator_name(scorer) not in _WITHOUT_REFERENCE


def _clients(scorer: Any) -> list[Any]:
    """Return the clients of a scorer and of the scorers in it; without an own client, that of `autoevals.init`."""
    if not hasattr(scorer, "__dict__"):
        return []
    inner = [client for value in vars(scorer).values() if recognises(value) for client in _clients(value)]
    if not hasattr(scorer, "client"):
        return inner
    shared = getattr(sys.modules.get("autoevals.oai"), "_client_var", None)
    client = scorer.client or (shared.get(None) if shared is not None else None)
    return [*inner, client] if client is not None else inner


def _is_async(client: Any) -> bool:
    """Return whether a client, autoevals' own or OpenAI's, is async."""
    inner = getattr(client, "openai", client)
    return bool(getattr(client, "is_async", False)) or type(inner).__name__.startswith("Async")
