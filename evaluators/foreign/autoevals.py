"""autoevals: objects with `eval(output, expected, **more)`, or their classes."""

import inspect
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from evaluators.foreign.judge import Foreign, made_of
from evaluators.score import Score
from evaluators.subject import ExampleView, RunView, whole
from specs.reference import comes_from, name_of

PACKAGE = "autoevals"

_ALWAYS = ("input", "output", "expected", "metadata")
_WITHOUT_REFERENCE = ("ValidJSON", "Moderation", "ContextRelevancy", "Faithfulness", "AnswerRelevancy")
_TAG = re.compile(r"\{\{\{?\s*([#^&]?)\s*([A-Za-z_]\w*)")


def is_one(found: object) -> bool:
    return comes_from(found, PACKAGE) and callable(getattr(found, "eval", None))


def of_class(kind: type, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings that a class is made with, and those that each call takes, such as `criteria`."""
    made_with = {name for one in kind.__mro__ for name in _parameters(one.__dict__.get("__init__"))}
    made_with |= {name for one in kind.__mro__ for name in _parameters(one.__dict__.get("__new__"))}
    at_each_call = _parameters(getattr(kind, "_run_eval_sync", None))
    made = {name: value for name, value in settings.items() if name in made_with}
    return made, {name: value for name, value in settings.items() if name not in made or name in at_each_call}


def foreign(scorer: Any, settings: dict[str, Any], who: str) -> Foreign:
    """What a scorer calls `output`, `input` and `expected` is what was given before it was wrapped.

    What else it asks for, in its signature or its template, are settings, else fields of the inputs or the metadata;
    `context` may also be a field of the answer. One that compares does not apply to an example without a reference.
    It is awaited where its client is async. Cannot see, as direct calls cannot, which field of an answer is meant.
    """
    compares, fields, second = _compares(scorer), _fields(scorer), _second(scorer)
    needed = () if _has_sections(scorer) else _template_names(scorer)

    def arguments(example: ExampleView, run: RunView) -> dict[str, Any]:
        given = {
            "output": whole(run.outputs, "output"),
            "expected": example.expected_output if second == "expected" else getattr(scorer, second, None),
            "input": example.input,
            "metadata": example.metadata,
        }
        found = _looked_up(fields - {second}, example, run) | settings
        if second in found:
            given["expected"] = found.pop(second)
        if lacking := [name for name in needed if name not in {*given, *found, *_rendered(scorer)}]:
            raise ValueError(
                f"asks for {lacking[0]!r}, wanted it under args, or as a field of the inputs or the metadata"
            )
        return given | found

    def judge(example: ExampleView, run: RunView) -> list[Any]:
        if compares and example.reference_outputs is None:
            return []
        return _scores(scorer.eval(**arguments(example, run)))

    async def judge_async(example: ExampleView, run: RunView) -> list[Any]:
        if compares and example.reference_outputs is None:
            return []
        return _scores(await scorer.eval_async(**arguments(example, run)))

    asks_later = any(_is_async(client) for client in _clients(scorer))
    parts = [name_of(scorer), made_of(scorer), made_of(_partial(scorer)), made_of(settings)]
    return Foreign(judge=judge_async if asks_later else judge, parts=parts, is_share=True)


def _scores(given: Any) -> list[Any]:
    """A score, as ours. None as its number means that the scorer does not apply."""
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
    found = inspect.signature(function).parameters.values()
    return {p.name for p in found if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)} - {"self", "cls"}


def _second(scorer: Any) -> str:
    """What a scorer calls what it is handed as `expected`, which is by its place: of ValidJSON, the schema."""
    parameters = list(inspect.signature(scorer._run_eval_sync).parameters.values())
    named = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    return named[1] if len(named) > 1 else "expected"


def _fields(scorer: Any) -> set[str]:
    """What a scorer asks for besides what it always gets."""
    return {*_parameters(type(scorer)._run_eval_sync), *_template_names(scorer)} - {*_ALWAYS, *_rendered(scorer)}


def _looked_up(names: Iterable[str], example: ExampleView, run: RunView) -> dict[str, Any]:
    found = {}
    for name in names:
        answer = run.outputs if name == "context" else None  # a target does not choose by what it is judged
        for source in (example.inputs, example.metadata, answer or {}):
            if name in source:
                found[name] = source[name]
                break
    return found


def _template(scorer: Any) -> str:
    messages = getattr(scorer, "messages", None) or []
    return "\n".join(str(message.get("content", "")) for message in messages if isinstance(message, Mapping))


def _template_names(scorer: Any) -> set[str]:
    return {name for _, name in _TAG.findall(_template(scorer))}


def _has_sections(scorer: Any) -> bool:
    """Whether its template leaves out, or repeats, parts of itself: then it is for it to say what is needed."""
    return any(kind in ("#", "^") for kind, _ in _TAG.findall(_template(scorer)))


def _rendered(scorer: Any) -> set[str]:
    return {"__choices", *(getattr(scorer, "render_args", None) or {}), *_partial(scorer)}


def _partial(scorer: Any) -> dict[str, Any]:
    return dict(scorer._partial_args()) if hasattr(scorer, "_partial_args") else {}


def _compares(scorer: Any) -> bool:
    """Whether it needs a reference: by its template, else by its name; one of the user's own decides for itself."""
    if _template(scorer):
        return "expected" in _template_names(scorer)
    own = str(type(scorer).__module__).partition(".")[0] == PACKAGE
    return own and "expected" not in _partial(scorer) and name_of(scorer) not in _WITHOUT_REFERENCE


def _clients(scorer: Any) -> list[Any]:
    """The clients that a scorer, and the scorers in it, ask; the one of `autoevals.init` where it has none."""
    if not hasattr(scorer, "__dict__"):
        return []
    inner = [one for value in vars(scorer).values() if is_one(value) for one in _clients(value)]
    if not hasattr(scorer, "client"):
        return inner
    shared = getattr(sys.modules.get("autoevals.oai"), "_client_var", None)
    client = scorer.client or (shared.get(None) if shared is not None else None)
    return [*inner, client] if client is not None else inner


def _is_async(client: Any) -> bool:
    """Of its own kind of client, or of OpenAI's."""
    asked = getattr(client, "openai", client)
    return bool(getattr(client, "is_async", False)) or type(asked).__name__.startswith("Async")
