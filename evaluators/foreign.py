"""Adapters for evaluators of other projects, without importing their packages: autoevals, openevals, LangSmith's
RunEvaluator, pydantic-evals.
"""

import inspect
import re
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from evalflows.evaluators.declarations import zero_to_one
from evalflows.evaluators.score import Score
from evalflows.evaluators.views import ExampleView, RunView, unwrapped
from evalflows.specs.errors import InputError, describe
from evalflows.specs.frozen import dataclass
from evalflows.specs.reference import comes_from, held_by, is_async, name_of, parameters_of, version_of

__all__ = ["as_ours", "evaluator_name", "origin_of"]

_DEEPEST = 8

AUTOEVALS_PACKAGE = "autoevals"

_ALWAYS = ("input", "output", "expected", "metadata")
_WITHOUT_REFERENCE = ("ValidJSON", "Moderation", "ContextRelevancy", "Faithfulness", "AnswerRelevancy")
_TAG = re.compile(r"\{\{\{?\s*([#^&]?)\s*([A-Za-z_]\w*)")

LANGSMITH_PACKAGE = "langsmith"

_MORE = ("correction", "evaluator_info", "feedback_config", "extra")
"""Fields of a result that go to the metadata. Trace ids do not, since no traces are stored."""

OPENEVALS_PACKAGE = "openevals"

_PARTS = "__version_parts__"
"""The attribute with the version parts of a function as first seen: a judge fills in its model at its first call."""

_offered_names = ("inputs", "outputs", "reference_outputs")

PYDANTIC_EVALS_PACKAGE = "pydantic_evals"

_NO_SPANS = "spans are not recorded: evalflows stores a run's steps, and this evaluator needs OpenTelemetry spans"
_ON_SPANS = "pydantic_evals.evaluators.agentic"
_ON_REPORTS = "ReportEvaluator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapted:
    """An adapted evaluator of another project."""

    judge: Callable[[ExampleView, RunView], Any]  # sync or async; returns a list of scores
    parts: object  # plain values that determine its version
    is_share: bool = False  # whether its scores are from 0 (worst) to 1 (best)


def version_values(value: object, path: tuple[int, ...] = ()) -> object:
    """Return plain values that are the same in every process; for an object, its class's source and its settings.

    Of an OpenAI client only the base URL counts. Attributes with a leading underscore, such as keys and locks, do not.
    """
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    if id(value) in path or len(path) == _DEEPEST:
        return type(value).__name__
    path = (*path, id(value))
    if isinstance(value, Mapping):
        return {str(key): version_values(item, path) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [version_values(item, path) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((version_values(item, path) for item in value), key=repr)
    if comes_from(value, "openai"):
        return [type(value).__name__, str(getattr(value, "base_url", ""))]
    return _of_code(value, path) if inspect.isroutine(value) or inspect.isclass(value) else _of_object(value, path)


def _of_code(value: Any, path: tuple[int, ...]) -> object:
    if inspect.ismethod(value):
        return [version_values(value.__func__, path), version_values(value.__self__, path)]
    return [version_of(value), version_values(held_by(value), path)]


def _of_object(value: object, path: tuple[int, ...]) -> object:
    if comes_from(value, "autoevals") and hasattr(value, "openai"):  # a wrapper around a client
        return version_values(value.openai, path)
    settings = {name: item for name, item in getattr(value, "__dict__", {}).items() if not name.startswith("_")}
    return [version_of(type(value)), version_values(settings, path)]


def evaluator_name(function: Callable[..., Any]) -> str:
    """Return the default name of an evaluator's score: for other projects' evaluators the name that they use."""
    inner = function.func if isinstance(function, partial) else function
    return _score_name(inner) or name_of(function)


def _score_name(inner: Any) -> str | None:
    """Return the score name of another project's evaluator, if known before a call; None for all others."""
    if inspect.isclass(inner):
        return None
    if comes_from(inner, "openevals"):
        return _name_by_factory(inner)
    if comes_from(inner, "langfuse") and (scorer := held_by(inner).get("autoevals_evaluator")):
        return evaluator_name(scorer)
    if comes_from(inner, "autoevals") and hasattr(inner, "_name"):
        return str(inner._name())
    if comes_from(inner, "pydantic_evals") and hasattr(inner, "get_default_evaluation_name"):
        return str(inner.get_default_evaluation_name())
    keys = getattr(inner, "feedback_keys", None) if comes_from(inner, "langsmith") else None
    return str(keys[0]) if keys and len(keys) == 1 else None


def _name_by_factory(function: Any) -> str | None:
    """Return the feedback key of an evaluator made by an openevals factory, else a name derived from the factory's."""
    held = held_by(function)
    factory, is_made, _ = str(getattr(function, "__qualname__", "")).partition(".<locals>")
    if "feedback_key" in held or not is_made:
        return held.get("feedback_key")
    name = factory.removeprefix("create_").removeprefix("async_").removesuffix("_evaluator")
    mode = held.get("trajectory_match_mode")
    return name.replace("_match", f"_{mode}_match") if mode else name


def recognises_autoevals(evaluator: object) -> bool:
    return comes_from(evaluator, AUTOEVALS_PACKAGE) and callable(getattr(evaluator, "eval", None))


def split_settings_autoevals(kind: type, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings for a class's constructor, and those for each call, such as `criteria`."""
    accepted = {name for base in kind.__mro__ for name in _parameters(base.__dict__.get("__init__"))}
    accepted |= {name for base in kind.__mro__ for name in _parameters(base.__dict__.get("__new__"))}
    per_call = _parameters(getattr(kind, "_run_eval_sync", None))
    initial = {name: value for name, value in settings.items() if name in accepted}
    return initial, {name: value for name, value in settings.items() if name not in initial or name in per_call}


def adapt_autoevals(scorer: Any, settings: dict[str, Any], where: str) -> Adapted:
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
        return _autoevals_scores(scorer.eval(**arguments(example, run)))

    async def judge_async(example: ExampleView, run: RunView) -> list[Any]:
        if compares and example.reference_outputs is None:
            return []
        return _autoevals_scores(await scorer.eval_async(**arguments(example, run)))

    is_async = any(_is_async_client(client) for client in _clients(scorer))
    parts = [evaluator_name(scorer), version_values(scorer), version_values(_partial(scorer)), version_values(settings)]
    return Adapted(judge=judge_async if is_async else judge, parts=parts, is_share=True)


def _argument_builder(scorer: Any, settings: dict[str, Any]) -> Callable[[ExampleView, RunView], dict[str, Any]]:
    """Return a function that builds the arguments of a call. It raises ValueError if a template's name has no value."""
    fields, second = _autoevals_fields(scorer), _second(scorer)
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


def _autoevals_scores(given: Any) -> list[Any]:
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


def _autoevals_fields(scorer: Any) -> set[str]:
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
    own = str(type(scorer).__module__).partition(".")[0] == AUTOEVALS_PACKAGE
    return own and "expected" not in _partial(scorer) and evaluator_name(scorer) not in _WITHOUT_REFERENCE


def _clients(scorer: Any) -> list[Any]:
    """Return the clients of a scorer and of the scorers in it; without an own client, that of `autoevals.init`."""
    if not hasattr(scorer, "__dict__"):
        return []
    inner = [client for value in vars(scorer).values() if recognises_autoevals(value) for client in _clients(value)]
    if not hasattr(scorer, "client"):
        return inner
    shared = getattr(sys.modules.get("autoevals.oai"), "_client_var", None)
    client = scorer.client or (shared.get(None) if shared is not None else None)
    return [*inner, client] if client is not None else inner


def _is_async_client(client: Any) -> bool:
    """Return whether a client, autoevals' own or OpenAI's, is async."""
    inner = getattr(client, "openai", client)
    return bool(getattr(client, "is_async", False)) or type(inner).__name__.startswith("Async")


def recognises(evaluator: object) -> bool:
    return callable(getattr(evaluator, "evaluate_run", None))


def split_settings(kind: type, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    return dict(settings), {}


def adapt(evaluator: Any, settings: dict[str, Any], where: str) -> Adapted:
    """Adapt a RunEvaluator. It gets LangSmith's `Run` and `Example`, with UUIDs derived from our ids.

    The metadata has our ids. An object of another package with this method gets our own views. It cannot see a
    project, earlier feedback, or a URL, since there are none.
    """
    if settings:
        raise InputError(f"{where}: got the setting {min(settings)!r} for an instance, wanted no settings")
    is_langsmith = comes_from(evaluator, LANGSMITH_PACKAGE)

    def views(example: ExampleView, run: RunView) -> tuple[Any, Any]:
        return (_run(run, example), _example(example)) if is_langsmith else (run, example)

    def judge(example: ExampleView, run: RunView) -> list[Any]:
        return _scores(evaluator.evaluate_run(*views(example, run)))

    async def judge_async(example: ExampleView, run: RunView) -> list[Any]:
        return _scores(await evaluator.aevaluate_run(*views(example, run)))

    function = inspect.unwrap(evaluator) if hasattr(evaluator, "__wrapped__") else evaluator
    return Adapted(
        judge=judge_async if _langsmith_is_async(evaluator) else judge,
        parts=[evaluator_name(evaluator), version_values(function)],
    )


def _langsmith_is_async(evaluator: Any) -> bool:
    """Return whether the user wrote the async method, or an async function for it."""
    declared = getattr(evaluator, "is_async", None)
    if isinstance(declared, bool):
        return declared
    if inspect.iscoroutinefunction(getattr(type(evaluator), "evaluate_run", None)):
        return False
    owner = next((base for base in type(evaluator).__mro__ if "aevaluate_run" in vars(base)), object)
    return owner is not object and not owner.__module__.startswith(f"{LANGSMITH_PACKAGE}.")


def _scores(given: Any) -> list[Any]:
    if isinstance(given, Mapping) and "results" in given:
        given = given["results"]
    return [_score(result) for result in (given if isinstance(given, list | tuple) else [given])]


def _score(result: Any) -> Any:
    names = ("key", "score", "value", "comment", "metadata", *_MORE)
    fields = result if isinstance(result, Mapping) else {n: getattr(result, n) for n in names if hasattr(result, n)}
    if not fields:
        return result
    score, value = fields.get("score"), fields.get("value")
    metadata = dict(fields.get("metadata") or {}) | {name: fields[name] for name in _MORE if fields.get(name)}
    return Score(
        key=fields.get("key"),
        value=value if score is None else score,
        label=value if score is not None and isinstance(value, str) else None,
        comment=fields.get("comment"),
        metadata=metadata or None,
    )


def _uuid(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        return uuid.uuid5(uuid.NAMESPACE_URL, f"evalflows:{text}")


def _example(view: ExampleView) -> Any:
    known = {"example_id": view.id, "split": view.split, "cluster": view.cluster}
    ids = {name: value for name, value in known.items() if value is not None}
    return import_module("langsmith.schemas").Example(
        id=_uuid(view.id), inputs=view.inputs, outputs=view.reference_outputs, metadata=ids | view.metadata
    )


def _run(view: RunView, example: ExampleView) -> Any:
    kind, start = import_module("langsmith.schemas").Run, view.started_at or datetime.fromtimestamp(0, tz=UTC)
    known = None not in (view.tokens_in, view.tokens_out)
    return kind(
        id=_uuid(view.id),
        name="Target",
        run_type="chain",
        inputs=view.inputs,
        outputs=view.outputs,
        error=view.error,
        status="success" if view.error is None else "error",
        start_time=start,
        end_time=_end(start, view.latency_s),
        reference_example_id=_uuid(example.id),
        extra={"metadata": {"run_id": view.id, "repetition": view.repetition}},
        child_runs=[_child(step, kind, view.id, start) for step in view.steps],
        prompt_tokens=view.tokens_in,
        completion_tokens=view.tokens_out,
        total_tokens=(view.tokens_in or 0) + (view.tokens_out or 0) if known else None,
        total_cost=view.cost_usd,
    )


def _child(step: Mapping[str, Any], kind: Any, run: str, began: datetime) -> Any:
    """Return a step as a child run; steps stay a flat list in order, with the parent's id on each."""
    start = datetime.fromisoformat(step["started_at"]) if step.get("started_at") else began
    return kind(
        id=_uuid(str(step.get("id") or run)),
        trace_id=_uuid(run),
        parent_run_id=_uuid(str(step.get("parent") or run)),
        name=str(step.get("name") or ""),
        run_type=str(step.get("kind") or "chain"),
        inputs=_fields(step.get("inputs"), "input") or {},
        outputs=_fields(step.get("outputs"), "output"),
        error=step.get("error"),
        start_time=start,
        end_time=_end(start, step.get("latency_s")),
    )


def _fields(value: Any, only: str) -> dict[str, Any] | None:
    return value if value is None or isinstance(value, dict) else {only: value}


def _end(start: datetime, latency_s: float | None) -> datetime | None:
    return None if latency_s is None else start + timedelta(seconds=latency_s)


def recognises_openevals(evaluator: object) -> bool:
    return inspect.isfunction(evaluator) and comes_from(evaluator, OPENEVALS_PACKAGE)


def split_settings_openevals(kind: type, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    raise InputError(f"{kind.__name__}: got a class, wanted a function of {OPENEVALS_PACKAGE}")


def adapt_openevals(function: Any, settings: dict[str, Any], where: str) -> Adapted:
    """Adapt a function. As in LangSmith, it gets the settings and those of the three arguments that it names.

    A trajectory can be the whole answer, a list of messages, which is unwrapped. It cannot see other placeholders of a
    prompt, such as {context}: pass them as settings, or write a function around it.
    """
    parameters = parameters_of(function, where)
    named = {p.name for p in parameters if p.kind is not p.VAR_KEYWORD}
    missing = [p.name for p in parameters if p.default is p.empty and p.name in named - {*_offered_names, *settings}]
    if missing:
        wanted = "the result of the create_… function" if function.__name__.startswith("create_") else "it under args"
        raise InputError(f"{where}: asks for {missing[0]!r}, wanted {wanted}")
    takes_messages = str(function.__module__).startswith("openevals.trajectory")

    def arguments(example: ExampleView, run: RunView) -> dict[str, Any]:
        values = (example.inputs, run.outputs, example.reference_outputs)
        fields = {name: value for name, value in zip(_offered_names, values, strict=True) if name in named}
        if takes_messages:
            fields = {name: _messages(value) for name, value in fields.items()}
        return fields | settings

    def judge(example: ExampleView, run: RunView) -> list[Any]:
        return _openevals_scores(function(**arguments(example, run)))

    async def judge_async(example: ExampleView, run: RunView) -> list[Any]:
        return _openevals_scores(await function(**arguments(example, run)))

    if _PARTS not in vars(function):
        vars(function)[_PARTS] = version_values(function)
    parts = [vars(function)[_PARTS], version_values(settings)]
    return Adapted(judge=judge_async if is_async(function) else judge, parts=parts)


def _messages(value: Any) -> Any:
    bare = unwrapped(value, "output")
    return bare if isinstance(bare, list) else value


def _openevals_scores(given: Any) -> list[Any]:
    return [_openevals_score(result) for result in (given if isinstance(given, list) else [given])]


def _openevals_score(given: Any) -> Any:
    """Convert a result with a key to a Score; return a result of the user's own schema unchanged."""
    if not isinstance(given, Mapping) or not given.keys() >= {"key", "score"}:
        return given
    return Score(
        key=given["key"], value=given["score"], comment=given.get("comment"), metadata=given.get("metadata") or None
    )


def recognises_pydantic_evals(evaluator: object) -> bool:
    return comes_from(evaluator, PYDANTIC_EVALS_PACKAGE) and callable(getattr(evaluator, "evaluate", None))


def adapt_pydantic_evals(evaluator: Any, settings: dict[str, Any], where: str) -> Adapted:
    """Adapt an evaluator. It gets an EvaluatorContext with the values before they were wrapped, the run's duration, and
    its tokens and cost as metrics.

    It cannot see spans: `span_tree` raises, as in pydantic-evals if no spans were recorded. Raise InputError for a
    report evaluator, and for built-in evaluators that would treat missing spans as a failed run.
    """
    kinds = {f"{base.__module__}.{base.__name__}" for base in type(evaluator).__mro__}
    if settings:
        raise InputError(f"{where}: got the setting {min(settings)!r} for an instance, wanted no settings")
    if any(kind.endswith(f".{_ON_REPORTS}") for kind in kinds):
        raise InputError(f"{where}: got a report evaluator of pydantic-evals, wanted one that judges a case")
    if any(kind.startswith(f"{_ON_SPANS}.") for kind in kinds):
        raise InputError(f"{where}: {_NO_SPANS}")

    def judge(example: ExampleView, run: RunView) -> list[Any]:
        return _pydantic_evals_scores(evaluator.evaluate_sync(_context(example, run)), evaluator)

    async def judge_async(example: ExampleView, run: RunView) -> list[Any]:
        return _pydantic_evals_scores(await evaluator.evaluate_async(_context(example, run)), evaluator)

    return Adapted(judge=judge_async if _is_async(evaluator) else judge, parts=_pydantic_evals_parts(evaluator))


def _is_async(evaluator: Any) -> bool:
    """Return whether the user wrote an async `evaluate`, or `evaluate_async` itself."""
    owner = next((base for base in type(evaluator).__mro__ if "evaluate_async" in vars(base)), object)
    return inspect.iscoroutinefunction(evaluator.evaluate) or not owner.__module__.startswith(
        f"{PYDANTIC_EVALS_PACKAGE}."
    )


def _pydantic_evals_parts(evaluator: Any) -> object:
    arguments = evaluator.build_serialization_arguments()  # represents a model by its name
    return [
        version_of(type(evaluator)),
        evaluator_name(evaluator),
        evaluator.get_evaluator_version(),
        version_values(arguments),
    ]


def _context(example: ExampleView, run: RunView) -> Any:
    known = {"input_tokens": run.tokens_in, "output_tokens": run.tokens_out, "cost": run.cost_usd}
    return import_module("pydantic_evals.evaluators").EvaluatorContext(
        name=example.id,
        inputs=example.input,
        metadata=example.metadata or None,
        expected_output=example.expected_output,
        output=unwrapped(run.outputs, "output"),
        duration=run.latency_s,  # None if unknown, so that a comparison with it raises instead of being wrong
        attributes={},
        metrics={name: value for name, value in known.items() if value is not None},
        _span_tree=import_module("pydantic_evals.otel").SpanTreeRecordingError(_NO_SPANS),
    )


def _pydantic_evals_scores(given: Any, evaluator: Any) -> list[Any]:
    """Convert the result: a scalar gets the evaluator's name, a mapping its keys; an empty mapping does not apply."""
    by_name = given if isinstance(given, Mapping) else {evaluator.get_default_evaluation_name(): given}
    return [_pydantic_evals_score(name, value) for name, value in by_name.items()]


def _pydantic_evals_score(name: str, given: Any) -> Score:
    has_reason = comes_from(given, PYDANTIC_EVALS_PACKAGE) and hasattr(given, "reason")
    value, reason = (given.value, given.reason) if has_reason else (given, None)
    return Score(key=str(name), value=value, comment=reason)


class _Project(NamedTuple):
    """How to recognise and adapt the evaluators of a project."""

    package: str
    recognises: Callable[[object], bool]
    split_settings: Callable[[type, Mapping[str, Any]], tuple[dict[str, Any], dict[str, Any]]]
    adapt: Callable[[Any, dict[str, Any], str], Adapted]


_PROJECTS = (
    _Project(AUTOEVALS_PACKAGE, recognises_autoevals, split_settings_autoevals, adapt_autoevals),
    _Project(OPENEVALS_PACKAGE, recognises_openevals, split_settings_openevals, adapt_openevals),
    _Project(LANGSMITH_PACKAGE, recognises, split_settings, adapt),
    _Project(PYDANTIC_EVALS_PACKAGE, recognises_pydantic_evals, split_settings, adapt_pydantic_evals),
)


def origin_of(evaluator: object) -> str | None:
    """Return the project of an evaluator that needs an adapter; None for plain functions of any origin."""
    project = _project_of(evaluator)
    return None if project is None else project.package


def as_ours(
    evaluator: Any, *, name: str, settings: Mapping[str, Any] | None = None, renamed: bool = False, one_run: bool = True
) -> Callable[..., Any] | None:
    """Return a function of `example` and `run` that calls another project's evaluator; None if no adapter is needed.

    A class is instantiated with the settings. Scores keep their own keys; with `renamed`, a single score gets `name`.
    Raise InputError for an evaluator that cannot be instantiated, for an unknown setting, and if it is to judge all
    runs at once (`one_run` is false).
    """
    project = _project_of(evaluator)
    if project is None:
        return None
    where = f"evaluator {name!r}"
    if not one_run:
        raise InputError(
            f"{where}: got an evaluator of {project.package}, which judges one run, wanted it under evaluators"
        )
    instance, call_settings = evaluator, dict(settings or {})
    if inspect.isclass(evaluator):
        instance, call_settings = _instance(evaluator, project.split_settings(evaluator, settings or {}), where)
    result = project.adapt(instance, call_settings, where)
    return _function(result, name if renamed else evaluator_name(evaluator), renamed)


def _project_of(evaluator: object) -> _Project | None:
    return next((project for project in _PROJECTS if project.recognises(evaluator)), None)


def _instance(kind: type, split: tuple[dict[str, Any], dict[str, Any]], where: str) -> tuple[object, dict[str, Any]]:
    """Return an instance of a class, and the settings for its calls."""
    try:
        return kind(**split[0]), split[1]
    except Exception as error:  # a constructor can raise anything about its settings
        raise InputError(f"{where}: {kind.__name__} cannot be instantiated: {describe(error)}") from error


def _function(result: Adapted, name: str, renamed: bool) -> Callable[..., Any]:
    def call(example: ExampleView, run: RunView) -> Any:
        return _named(result.judge(example, run), renamed)

    async def call_later(example: ExampleView, run: RunView) -> Any:
        return _named(await result.judge(example, run), renamed)

    function = call_later if inspect.iscoroutinefunction(result.judge) else call
    function.__name__ = name
    vars(function)["version_parts"] = result.parts
    if result.is_share:
        vars(function)["metrics"] = {name: zero_to_one()}
    return function


def _named(scores: list[Any], renamed: bool) -> list[Any]:
    """Drop the key of a single score that the spec names, so that it gets the spec's name."""
    if renamed and len(scores) == 1 and isinstance(scores[0], Score):
        return [replace(scores[0], key=None)]
    return scores
