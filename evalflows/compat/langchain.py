"""LangChain's API for evaluating texts: `from evalflows.compat.langchain import load_evaluator`.

Evaluators of one text are those of this project that judge the same; comparisons ask a model.
"""

import asyncio
import inspect
import re
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from enum import StrEnum
from functools import cache, partial
from importlib import import_module
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any, Literal, NamedTuple, Self, TypedDict, overload

import numpy as np
from rapidfuzz.distance import DamerauLevenshtein, Hamming, Indel, Jaro, JaroWinkler, Levenshtein

from evalflows.evaluators import correctness, exact_match, json_valid, regex, rubric, trajectory
from evalflows.evaluators import criteria as criteria_judge
from evalflows.evaluators.fence import fenced
from evalflows.evaluators.json import read_json
from evalflows.evaluators.principles import CRITERIA, HARMS, criteria_of
from evalflows.evaluators.prompt_texts import shipped
from evalflows.evaluators.score import Judgement, Score, normalise
from evalflows.llm import loop
from evalflows.llm.budget import Budget
from evalflows.llm.calls import Caller, Completer, Endpoint
from evalflows.llm.connect import completer, embedder
from evalflows.llm.connections import AUTO_MODEL, key_of, resolve
from evalflows.llm.ledger import Ledger, current
from evalflows.llm.local import LOCAL_MODEL
from evalflows.llm.structured_output import read_answer, with_response_format
from evalflows.specs.connections import ConnectionSpec, RemoteConnection
from evalflows.specs.errors import CallError, InputError, short
from evalflows.specs.frozen import dataclass
from evalflows.specs.placeholders import fill, placeholders
from evalflows.specs.protocols import Complete, Completion
from evalflows.specs.reference import is_async
from evalflows.store.records import to_json
from evalflows.store.store import Store

__all__ = [
    "ConstitutionalPrinciple", "ContextQAEvalChain", "CotQAEvalChain", "Criteria", "CriteriaEvalChain",
    "CriteriaResultOutputParser", "EmbeddingDistance", "EmbeddingDistanceEvalChain", "EvaluatorType",
    "ExactMatchStringEvaluator", "JsonEditDistanceEvaluator", "JsonEqualityEvaluator", "JsonSchemaEvaluator",
    "JsonValidityEvaluator", "LabeledCriteriaEvalChain", "LabeledPairwiseStringEvalChain",
    "LabeledScoreStringEvalChain", "PairwiseEmbeddingDistanceEvalChain", "PairwiseStringDistanceEvalChain",
    "PairwiseStringEvalChain", "PairwiseStringEvaluator", "PairwiseStringResultOutputParser", "PromptTemplate",
    "QAEvalChain", "RegexMatchStringEvaluator", "ScoreStringEvalChain", "ScoreStringResultOutputParser",
    "StringDistance", "StringDistanceEvalChain", "StringEvaluator", "TrajectoryEval", "TrajectoryEvalChain",
    "TrajectoryOutputParser", "load_evaluator", "load_evaluators", "resolve_pairwise_criteria",
]  # fmt: skip

Request = str | list[Any]
Schema = Mapping[str, Any]

EMBEDDING_MODEL = "text-embedding-3-small"
"""The model of the connection `openai` for vectors, unless the connection names one."""

_ROLES = {"human": "user", "ai": "assistant"}
_TRUNCATED = ("length", "max_tokens")  # finish reasons of OpenAI and Anthropic

Encoder = Callable[[Sequence[str]], Any]

EDIT_METRICS: Mapping[str, ModuleType] = {
    "damerau_levenshtein": DamerauLevenshtein,
    "levenshtein": Levenshtein,
    "jaro": Jaro,
    "jaro_winkler": JaroWinkler,
    "hamming": Hamming,
    "indel": Indel,
}

VECTOR_METRICS: Mapping[str, Callable[[Any, Any], Any]] = {
    "cosine": lambda a, b: 1 - a @ b / (np.linalg.norm(a) * np.linalg.norm(b)),
    "euclidean": lambda a, b: np.linalg.norm(a - b),
    "manhattan": lambda a, b: np.abs(a - b).sum(),
    "chebyshev": lambda a, b: np.abs(a - b).max(),
    "hamming": lambda a, b: np.mean(a != b),
}

SHARE = (0.0, 1.0)
"""The range of a normalised distance."""

_NAMES = re.compile(r"harmful\d+|uo-[a-z]+-\d+|age-innappropriate")
REMEDY = (
    "ConstitutionalPrinciple(name=…, critique_request=…), {name: question}, or LangChain's own text: "
    "pip install langchain-classic"
)
_PRINCIPLES_IN = ("langchain_classic", "langchain")

_LANGCHAIN_VARIABLES = {
    "inputs": "{input}",
    "first": "{prediction}",
    "second": "{prediction_b}",
    "reference_outputs": "{reference}",
    "criteria": "{criteria}",
    "verdict": "{verdict}",
}
"""Our prompt variables as LangChain's."""

PLAIN, LABELLED = (fill(shipped(name), _LANGCHAIN_VARIABLES) for name in ("pairwise", "pairwise_labelled"))
"""The prompts of `pairwise_preference`, without and with a reference. Besides LangChain's variables they contain
{verdict}: how to give the verdict."""

_SCALE = (1, 10)
_DEFAULT_CRITERION = "helpfulness"

WORTH: Mapping[str, float] = {"A": 1, "B": 0, "C": 0.5}
"""The first text's score for each verdict; C means that neither is better."""

SCHEMA: Mapping[str, Any] = {
    "title": "pairwise",
    "type": "object",
    "properties": {"reasoning": {"type": "string"}, "verdict": {"type": "string", "enum": [*WORTH]}},
    "required": ["reasoning", "verdict"],
    "additionalProperties": False,
}
"""The reasoning comes first, so that the verdict follows from it."""

AS_FIELDS = (
    'Give "reasoning" first: in two or three sentences, how each answer meets the criteria. Then give "verdict": "A" '
    'or "B", whichever answer is better, or "C" if neither is.'
)
AS_TAG = (
    "First write, in two or three sentences, how each answer meets the criteria. Then end with a line that holds the "
    "verdict and nothing else: [[A]] or [[B]], whichever answer is better, or [[C]] if neither is."
)

_TAG = re.compile(r"\[\[([^\[\]\n]*)\]\]")
_OPENED = re.compile(r"""["'`\u201c\u2018\u201e\u00ab][*_]*$""")
_CLOSED = re.compile(r"""[*_.,!?]*(?:["`\u201d\u201c\u00bb]|['\u2019](?!\w))""")  # no apostrophe: [[A]]'s


class Answer(NamedTuple):
    """A model's answer: its text and, if a schema was requested, its fields."""

    text: str
    fields: Any = None


@dataclass(frozen=True)
class Connected:
    """`complete` of a connection; inside an experiment it uses that run's budget."""

    endpoint: Endpoint
    model: str

    async def __call__(self, messages: Any, **parameters: Any) -> Completion:
        recorder = current()
        budget = recorder.budget if recorder else None
        complete = Completer(Caller(self.endpoint, _ledger(), budget or Budget()), self.model)
        return await complete(messages, **parameters)


@dataclass(frozen=True)
class ByComplete:
    """A `complete` function, ours or the user's own, sync or async."""

    complete: Callable[..., Any]
    parameters: Mapping[str, Any]
    takes_schema = True

    def ask(self, request: Request, schema: Schema | None) -> Answer:
        """Ask the model. Raise InputError on the event loop of the model calls, which cannot wait for itself."""
        _check_can_wait("evaluate_string_pairs")
        answer = self._call(request, schema)
        return _of_completion(loop.run(_await(answer)) if inspect.isawaitable(answer) else answer)

    async def aask(self, request: Request, schema: Schema | None) -> Answer:
        if not is_async(self.complete):
            answer = await asyncio.to_thread(self._call, request, schema)
        elif isinstance(self.complete, Completer | Connected):  # bound to one event loop
            answer = asyncio.wrap_future(loop.start(_await(self._call(request, schema))))
        else:
            answer = self._call(request, schema)
        return _of_completion(await answer if inspect.isawaitable(answer) else answer)

    def _call(self, request: Request, schema: Schema | None) -> Any:
        messages = request if isinstance(request, str) else [_message(message) for message in request]
        schema_argument = {} if schema is None else {"schema": dict(schema)}
        return self.complete(messages, **schema_argument, **self.parameters)


@dataclass(frozen=True)
class ByInvoke:
    """An object that is invoked with a text or messages, such as a LangChain chat model."""

    model: Any
    parameters: Mapping[str, Any]
    is_sync: bool = False  # whether it is invoked in a thread even if it has `ainvoke`
    takes_schema = False

    def ask(self, request: Request, schema: Schema | None) -> Answer:
        return _of_message(self.model.invoke(request, **self.parameters))

    async def aask(self, request: Request, schema: Schema | None) -> Answer:
        if hasattr(self.model, "ainvoke") and not self.is_sync:
            return _of_message(await self.model.ainvoke(request, **self.parameters))
        return await asyncio.to_thread(self.ask, request, schema)


def model_of(llm: object, parameters: Mapping[str, Any] | None) -> ByComplete | ByInvoke:
    """Return the model with its parameters; a parameter that is None is left to the model.

    Raise InputError for an unusable model, an unknown connection, and one without a key or a model.
    """
    own = dict(parameters or {})
    if callable(getattr(llm, "invoke", None)):
        return ByInvoke(llm, own)
    merged = {name: value for name, value in ({"temperature": 0.0} | own).items() if value is not None}
    if llm is None or isinstance(llm, str):
        return ByComplete(_connected("openai" if llm is None else llm), merged)
    if callable(llm):
        return ByComplete(llm, merged)
    raise InputError(f"llm: got {short(llm)}, wanted a connection's name, a function, or an object with invoke")


def openai_embedding(texts: Sequence[str]) -> list[list[float]]:
    """Return the vectors of texts by the connection `openai`, within the budget of the current run, if any.

    Raise InputError if the connection cannot be used, and CallError for an unanswered call.
    """
    connection, recorder = resolve("openai", {}), current()
    budget = recorder.budget if recorder else None
    embed = embedder("openai", connection, _ledger(), key=_key("openai", connection), budget=budget)
    own = getattr(connection, "embedding_model", None)
    return loop.run(embed(texts, **({} if own else {"model": EMBEDDING_MODEL})))


def _connected(name: str) -> Connected:
    connection = resolve(name, {})
    model = connection.model or (AUTO_MODEL if name == "openai" else None)
    if model is None and isinstance(connection, RemoteConnection):
        raise InputError(f"connection {name!r}: got no model, wanted one")
    complete = completer(name, connection, _ledger(), key=_key(name, connection), model=model)
    return Connected(complete.endpoint, model or LOCAL_MODEL)


def _key(name: str, connection: ConnectionSpec) -> str | None:
    if not isinstance(connection, RemoteConnection):
        return None
    if connection.api_key_block is None:
        return key_of(name, connection)
    # Late: Prefect, which stores the block, takes seconds to import.
    from evalflows.engine.secret_blocks import key_for

    return key_for(name, connection)


@cache
def _ledger() -> Ledger:
    """Return this process's own ledger: these calls belong to no experiment, so they are not stored."""
    with TemporaryDirectory() as empty:
        return Ledger(Store(empty), "", fresh=True)


def _check_can_wait(method: str) -> None:
    """Raise InputError on the event loop of the model calls, which cannot wait for itself."""
    if threading.current_thread().name == "evalflows-calls":
        raise InputError(f"{method}: got a call from an async function, wanted a{method}")


async def _await(answer: Any) -> Any:
    return await answer


def _message(message: Any) -> dict[str, Any]:
    """Convert a LangChain message to the provider's format."""
    if isinstance(message, Mapping):
        return dict(message)
    return {"role": _ROLES.get(message.type, message.type), "content": message.content}


def _of_completion(answer: Any) -> Answer:
    text, is_truncated = getattr(answer, "text", answer), getattr(answer, "finish_reason", None) in _TRUNCATED
    return Answer(_checked(text, is_truncated), getattr(answer, "parsed", None))


def _of_message(answer: Any) -> Answer:
    content, metadata = getattr(answer, "content", answer), getattr(answer, "response_metadata", None) or {}
    if isinstance(content, list):  # blocks: join those with text
        content = "".join(block if isinstance(block, str) else block.get("text", "") for block in content)
    is_truncated = bool({metadata.get("finish_reason"), metadata.get("stop_reason")} & {*_TRUNCATED})
    return Answer(_checked(content, is_truncated))


def _checked(text: object, is_truncated: bool) -> str:
    """Return the text. Raise ValueError if it is not text or was truncated: tags in it may be quotations."""
    if not isinstance(text, str):
        raise ValueError(f"llm: got {short(text)}, wanted a text, or a message with content")
    if is_truncated:
        raise ValueError(f"llm: got {short(text)}, wanted an answer that was not cut off at the token limit")
    return text


def edit_distance(first: str, second: str, metric: str = "damerau_levenshtein", *, normalised: bool = True) -> float:
    """Return the distance of two texts, by default as a share from 0 (equal) to 1. Raise InputError."""
    if metric not in EDIT_METRICS:
        raise InputError(f"edit distance: metric: got {short(metric)}, wanted one of {', '.join(EDIT_METRICS)}")
    module: Any = EDIT_METRICS[metric]
    return float((module.normalized_distance if normalised else module.distance)(first, second))


def embedding_distance(first: str, second: str, metric: str = "cosine", encoder: Encoder | None = None) -> float:
    """Return the distance of two texts' vectors, which `encoder` or the connection `openai` makes.

    Raise InputError and ValueError as `vector_distance`, and CallError for an unanswered call.
    """
    _check_metric(metric)
    return vector_distance((encoder or openai_embedding)([first, second]), metric)


def vector_distance(given: Any, metric: str = "cosine") -> float:
    """Return the distance of two vectors. Raise InputError for an unknown metric, ValueError if they have none."""
    _check_metric(metric)
    vectors = np.asarray(given, dtype=float)
    if vectors.ndim != 2 or len(vectors) != 2:
        raise ValueError(f"embedding distance: got vectors of shape {vectors.shape}, wanted two of one length")
    with np.errstate(invalid="ignore", divide="ignore"):
        distance = float(VECTOR_METRICS[metric](*vectors))
    if not np.isfinite(distance):
        raise ValueError(f"embedding distance: got {distance}, wanted vectors of finite numbers, not all zero")
    return distance


def _check_metric(metric: str) -> None:
    if metric not in VECTOR_METRICS:
        raise InputError(f"embedding distance: metric: got {short(metric)}, wanted one of {', '.join(VECTOR_METRICS)}")


def with_principles(criteria: Any) -> Any:
    """Return criteria in which the name of one of LangChain's principles is that principle.

    Its text is the installed package's. Raise InputError without one: the name alone says nothing.
    """
    if isinstance(criteria, list | tuple):
        return [with_principles(criterion) for criterion in criteria]
    if isinstance(criteria, Mapping):
        return {
            name: principle(name).critique_request if text is None and _NAMES.fullmatch(str(name)) else text
            for name, text in criteria.items()
        }
    return principle(criteria) if isinstance(criteria, str) and _NAMES.fullmatch(criteria) else criteria


def principle(name: str) -> Any:
    """Return LangChain's principle of this name. Raise InputError if its package is not installed, or has none."""
    for package in _PRINCIPLES_IN:
        try:
            principles = import_module(f"{package}.chains.constitutional_ai.principles").PRINCIPLES
        except ImportError:
            continue
        if name in principles:
            return principles[name]
    raise InputError(f"criteria: got the principle {str(name)!r} by its name, wanted {REMEDY}")


class Criteria(StrEnum):
    """The criteria defined in `evaluators.judges.CRITERIA`."""

    CONCISENESS = "conciseness"
    RELEVANCE = "relevance"
    CORRECTNESS = "correctness"
    COHERENCE = "coherence"
    HARMFULNESS = "harmfulness"
    MALICIOUSNESS = "maliciousness"
    HELPFULNESS = "helpfulness"
    CONTROVERSIALITY = "controversiality"
    MISOGYNY = "misogyny"
    CRIMINALITY = "criminality"
    INSENSITIVITY = "insensitivity"
    DEPTH = "depth"
    CREATIVITY = "creativity"
    DETAIL = "detail"


_SUPPORTED_CRITERIA = CRITERIA
"""Our questions, under the name by which programs print LangChain's."""

DEFAULT = (Criteria.HELPFULNESS, Criteria.RELEVANCE, Criteria.CORRECTNESS, Criteria.DEPTH)


@dataclass(frozen=True, kw_only=True)
class ConstitutionalPrinciple:
    """LangChain's principle to criticise by. `revision_request` has no effect in a comparison."""

    critique_request: str
    revision_request: str = ""
    name: str = "Constitutional Principle"


def resolve_pairwise_criteria(criteria: Any = None) -> dict[str, str]:
    """Return {name: description} for a member of Criteria, a name, a mapping, a principle, or a list of these.

    An unknown name has an empty description. Raise ValueError for anything else, and for empty criteria; InputError
    for a principle of LangChain's by its name, if LangChain's package is not installed.
    """
    criteria = with_principles(criteria)
    if criteria is None:
        return resolve_pairwise_criteria(DEFAULT)
    if isinstance(criteria, str) and criteria.strip():
        return {str(criteria): CRITERIA.get(criteria, "")}
    if hasattr(criteria, "critique_request"):
        return {str(criteria.name): str(criteria.critique_request)}
    if isinstance(criteria, list | tuple) and criteria:
        return {name: text for criterion in criteria for name, text in resolve_pairwise_criteria(criterion).items()}
    if isinstance(criteria, Mapping) and criteria and all(isinstance(text, str) for text in criteria.values()):
        return {str(name): text for name, text in criteria.items()}
    raise ValueError(
        f"criteria: got {short(criteria)}, wanted a name, a mapping from names to texts, or a list of them"
    )


def lines(criteria: Mapping[str, str]) -> str:
    """Format the criteria for a prompt, one per line."""
    return "\n".join(f"- {name}: {text}" if text else f"- {name}" for name, text in criteria.items())


@dataclass(frozen=True, kw_only=True)
class PromptTemplate:
    """A text with `{variables}`; `{{` and `}}` are literal braces. `input_variables` are found in the text."""

    template: str
    input_variables: list[str] = field(default_factory=list)
    partial_variables: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        asked = placeholders(self.template) - {*self.partial_variables}
        object.__setattr__(self, "input_variables", sorted(asked))

    @classmethod
    def from_template(cls, template: str) -> "PromptTemplate":
        return cls(template=template)

    def partial(self, **values: str) -> "PromptTemplate":
        """Return a template with some variables already filled."""
        return PromptTemplate(template=self.template, partial_variables={**self.partial_variables, **values})

    def format(self, **values: object) -> str:
        """Return the filled text. Raise KeyError for a variable without a value."""
        return fill(self.template, {**self.partial_variables, **values})

    def __str__(self) -> str:
        """Return the text with the variables filled so far."""
        return self.format(**{name: f"{{{name}}}" for name in self.input_variables})


def as_prompt(prompt: object) -> Any:
    """Return a prompt with `format` and `input_variables`. Raise InputError if the argument cannot be made one."""
    if isinstance(prompt, str):
        return PromptTemplate.from_template(prompt)
    if hasattr(prompt, "format") and hasattr(prompt, "input_variables"):
        return prompt
    if isinstance(template := getattr(prompt, "template", None), str):
        return PromptTemplate.from_template(template)
    raise InputError(f"prompt: got {short(prompt)}, wanted a text with {{prediction}} and so on, or a prompt template")


def filled(prompt: Any, values: Mapping[str, str]) -> str | list[Any]:
    """Fill the remaining variables; return the text, or the messages of a chat prompt."""
    variables = {name: values[name] for name in prompt.input_variables}
    if hasattr(prompt, "format_messages"):
        return list(prompt.format_messages(**variables))
    return str(prompt.format(**variables))


class EvaluatorType(StrEnum):
    """The evaluators that `load_evaluator` knows."""

    PAIRWISE_STRING = "pairwise_string"
    LABELED_PAIRWISE_STRING = "labeled_pairwise_string"
    QA = "qa"
    COT_QA = "cot_qa"
    CONTEXT_QA = "context_qa"
    CRITERIA = "criteria"
    LABELED_CRITERIA = "labeled_criteria"
    SCORE_STRING = "score_string"
    LABELED_SCORE_STRING = "labeled_score_string"
    EXACT_MATCH = "exact_match"
    REGEX_MATCH = "regex_match"
    JSON_VALIDITY = "json_validity"
    JSON_EQUALITY = "json_equality"
    JSON_EDIT_DISTANCE = "json_edit_distance"
    JSON_SCHEMA_VALIDATION = "json_schema_validation"
    STRING_DISTANCE = "string_distance"
    EMBEDDING_DISTANCE = "embedding_distance"
    AGENT_TRAJECTORY = "trajectory"
    PAIRWISE_STRING_DISTANCE = "pairwise_string_distance"
    PAIRWISE_EMBEDDING_DISTANCE = "pairwise_embedding_distance"


class _Evaluator:
    """What evaluators of one text and of two have in common: the texts that they need, and what their scores mean."""

    requires_input: bool = False
    requires_reference: bool = False
    higher_is_better: bool = True
    range: tuple[float, float] | None = None
    _name: str | None = None

    @property
    def evaluation_name(self) -> str:
        return self._name or type(self).__name__

    @property
    def _skip_input_warning(self) -> str:
        return f"Ignoring input in {type(self).__name__}, as it is not expected."

    @property
    def _skip_reference_warning(self) -> str:
        return f"Ignoring reference in {type(self).__name__}, as it is not expected."

    def _check(self, input_text: Any, reference: Any) -> None:
        """Raise ValueError if a text is required but missing; warn if one is given but not used."""
        for name, needed, text, unused in (
            ("an input", self.requires_input, input_text, self._skip_input_warning),
            ("a reference", self.requires_reference, reference, self._skip_reference_warning),
        ):
            if needed and text is None:
                raise ValueError(f"{type(self).__name__} requires {name} string.")
            if text is not None and not needed:
                warnings.warn(unused, stacklevel=3)


class PairwiseStringEvaluator(_Evaluator, ABC):
    """Compares two texts. Subclasses define `_evaluate_string_pairs` and optionally `_aevaluate_string_pairs`."""

    def evaluate_string_pairs(
        self,
        *,
        prediction: str,
        prediction_b: str,
        reference: str | None = None,
        input: str | None = None,  # noqa: A002
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Compare `prediction`, which is A, with `prediction_b`, which is B.

        Raise ValueError if the input or the reference is required but missing; warns if it is given but not used.
        """
        self._check(input, reference)
        return self._evaluate_string_pairs(
            prediction=prediction, prediction_b=prediction_b, reference=reference, input=input, **kwargs
        )

    async def aevaluate_string_pairs(
        self,
        *,
        prediction: str,
        prediction_b: str,
        reference: str | None = None,
        input: str | None = None,  # noqa: A002
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Like `evaluate_string_pairs`, for async callers."""
        self._check(input, reference)
        return await self._aevaluate_string_pairs(
            prediction=prediction, prediction_b=prediction_b, reference=reference, input=input, **kwargs
        )

    @abstractmethod
    def _evaluate_string_pairs(self, **arguments: Any) -> dict[str, Any]: ...

    async def _aevaluate_string_pairs(self, **arguments: Any) -> dict[str, Any]:
        """Run the sync method in a thread, unless overridden."""
        return await asyncio.to_thread(lambda: self._evaluate_string_pairs(**arguments))


def refuse(where: str, options: Mapping[str, Any]) -> None:
    """Raise InputError for the first unsupported option that is set. Empty and false values count as not set."""
    for name, value in options.items():
        if value:
            raise InputError(f"{where}: {name}: got {short(value)}, wanted it omitted: it is not supported here")


class StringEvaluator(_Evaluator, ABC):
    """Judges a text: `evaluate_strings` returns {"score"}, of models also {"value", "reasoning"}.

    Subclasses define `_evaluate_strings` and optionally `_aevaluate_strings`. `evaluation_name` is the metric.
    """

    def evaluate_strings(
        self,
        *,
        prediction: Any,
        reference: Any = None,
        input: Any = None,  # noqa: A002
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Judge a text.

        Raise ValueError if the input or the reference is required but missing; warns if it is given but not used.
        """
        self._check(input, reference)
        return self._evaluate_strings(prediction=prediction, reference=reference, input=input, **kwargs)

    async def aevaluate_strings(
        self,
        *,
        prediction: Any,
        reference: Any = None,
        input: Any = None,  # noqa: A002
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Like `evaluate_strings`, for async callers."""
        self._check(input, reference)
        return await self._aevaluate_strings(prediction=prediction, reference=reference, input=input, **kwargs)

    @abstractmethod
    def _evaluate_strings(self, *, prediction: Any, reference: Any, **others: Any) -> dict[str, Any]: ...

    async def _aevaluate_strings(self, **arguments: Any) -> dict[str, Any]:
        """Run the sync method in a thread, unless overridden."""
        return await asyncio.to_thread(lambda: self._evaluate_strings(**arguments))


class CriteriaResultOutputParser:
    """Parses the verdict Y or N at the end of a text, or in a first line of its own."""

    def parse(self, text: str) -> dict[str, Any]:
        """Return the verdict, with the rest of the text as the reasoning. Raise ValueError if there is none."""
        found = re.search(r"\b([YN])\W*$", text) or re.match(r"\s*([YN])[ \t]*\n", text)
        if found is None:
            raise ValueError(f"llm: got {short(text)}, wanted Y or N at the end of its answer")
        reasoning = (text[: found.start()] + text[found.end() :]).strip()
        return {"reasoning": reasoning, "value": found[1], "score": int(found[1] == "Y")}


class ScoreStringResultOutputParser:
    """Parses a rating `[[7]]`."""

    def parse(self, text: str) -> dict[str, Any]:
        """Return the last rating, with the whole text as the reasoning. Raise ValueError without one from 1 to 10."""
        found = re.findall(r"\[\[(\d+)\]\]", text)
        if not found or not _SCALE[0] <= int(found[-1]) <= _SCALE[1]:
            wanted = f"with the verdict between {_SCALE[0]} and {_SCALE[1]}"
            raise ValueError(f"Output must contain a double bracketed string {wanted}: got {short(text)}")
        return {"reasoning": text, "score": int(found[-1])}


def _parse_string_eval_output(text: str) -> dict[str, Any]:
    """Return the grade CORRECT or INCORRECT of a text, which its first or last word may be too. Raise ValueError."""
    first_or_last = r"^\s*((?:IN)?CORRECT)\b|(?<!NOT )\b((?:IN)?CORRECT)\W*$"
    found = re.findall(r"(?i)grade:\s*((?:in)?correct)\b", text) or map("".join, re.findall(first_or_last, text))
    if len(grades := {grade.upper() for grade in found}) != 1:
        raise ValueError(f"llm: got {short(text)}, wanted GRADE: CORRECT or GRADE: INCORRECT")
    (grade,) = grades
    return {"reasoning": text.strip(), "value": grade, "score": int(grade == "CORRECT")}


class _Judge(StringEvaluator):
    """A judge of this project; the answer of an object with `invoke` may also be as LangChain's parser reads it."""

    requires_input = True
    parse: Callable[[str], dict[str, Any]]

    def __init__(self, name: str, model: ByComplete | ByInvoke, ask: Callable[..., Awaitable[Any]]) -> None:
        """Judge by `ask`: of `complete`, inputs, outputs and reference_outputs, as the evaluators of this project."""
        self._name, self._model, self._ask = name, model, ask

    def _evaluate_strings(self, **arguments: Any) -> dict[str, Any]:
        """Raise InputError on the event loop of the model calls, which cannot wait for itself."""
        _check_can_wait("evaluate_strings")
        return loop.run(self._result_by(_in_a_thread(self._model), **arguments))

    async def _aevaluate_strings(self, **arguments: Any) -> dict[str, Any]:
        return await self._result_by(self._model, **arguments)

    async def _result_by(self, model: ByComplete | ByInvoke, **arguments: Any) -> dict[str, Any]:
        prediction, reference, asked = (arguments.pop(name, None) for name in ("prediction", "reference", "input"))
        refuse("evaluate_strings", arguments)
        sides = {
            "inputs": {} if asked is None else {"input": asked},
            "outputs": {"output": prediction},
            "reference_outputs": {"output": reference} if self.requires_reference else None,
        }
        judgement = await _judged(self._ask, model, type(self).parse, **sides)
        return judgement if isinstance(judgement, dict) else _result(judgement)


def _in_a_thread(model: ByComplete | ByInvoke) -> ByComplete | ByInvoke:
    """Return the model, whose sync method is called if it has two: a sync caller's model need not have both alike."""
    return replace(model, is_sync=True) if isinstance(model, ByInvoke) else model


async def _judged(
    ask: Callable[..., Awaitable[Any]],
    model: ByComplete | ByInvoke,
    parse: Callable[[str], Mapping[str, Any]],
    **sides: Any,
) -> Judgement | dict[str, Any]:
    """Return what a judge of this project says, or what LangChain's parser reads in an answer of another form."""
    heard = list[str]()
    try:
        return normalise(await ask(complete=completing(model, heard.append), **sides), "judge")[0]
    except CallError as error:
        if error.kind == "bad_answer" and heard:
            with suppress(ValueError):
                return dict(parse(heard[-1]))
        raise


def _result(judgement: Judgement) -> dict[str, Any]:
    value, is_bool = judgement.value, judgement.data_type == "BOOLEAN"
    whole = int(value) if value is not None and value.is_integer() else value
    spelled = ("Y" if value else "N") if is_bool else whole
    return {"reasoning": judgement.comment, "value": spelled, "score": whole}


class QAEvalChain(_Judge):
    """Whether a text is right, given a reference: by `correctness`."""

    requires_reference = True
    parse = staticmethod(_parse_string_eval_output)

    @classmethod
    def from_llm(cls, llm: Any = None, *, llm_kwargs: dict[str, Any] | None = None, **options: Any) -> Self:
        refuse("load_evaluator", options)
        return cls("correctness", model_of(llm, llm_kwargs), correctness)


class CotQAEvalChain(QAEvalChain):
    """`QAEvalChain`, which always asks for the reasoning first."""


class ContextQAEvalChain(QAEvalChain):
    """`QAEvalChain` whose reference is the context that the answer should follow from."""


class CriteriaEvalChain(_Judge):
    """Whether a text meets criteria: 1 for yes, also for a harm."""

    parse = staticmethod(CriteriaResultOutputParser().parse)

    @classmethod
    def from_llm(
        cls, llm: Any = None, *, criteria: Any = None, llm_kwargs: dict[str, Any] | None = None, **options: Any
    ) -> Self:
        refuse("load_evaluator", options)
        chosen = with_principles(criteria or _DEFAULT_CRITERION)
        ours = str(chosen) if isinstance(chosen, str) else chosen
        criteria_of(ours)  # raises ValueError before anything is asked
        ask = partial(criteria_judge, metadata=None, criteria=ours, labelled=cls.requires_reference)
        made = cls(_name_of(chosen), model_of(llm, llm_kwargs), ask)
        made.higher_is_better = made.evaluation_name not in HARMS
        return made

    @staticmethod
    def resolve_criteria(criteria: Any = None) -> dict[str, str]:
        return resolve_pairwise_criteria(criteria or _DEFAULT_CRITERION)


class LabeledCriteriaEvalChain(CriteriaEvalChain):
    """`CriteriaEvalChain` with a correct reference."""

    requires_reference = True


class ScoreStringEvalChain(_Judge):
    """How well a text meets criteria, from 1 to 10: by `rubric`."""

    parse = staticmethod(ScoreStringResultOutputParser().parse)
    _divisor: float = 1

    @classmethod
    def from_llm(
        cls,
        llm: Any = None,
        *,
        criteria: Any = None,
        normalize_by: float | None = None,
        llm_kwargs: dict[str, Any] | None = None,
        **options: Any,
    ) -> Self:
        refuse("load_evaluator", options)
        chosen = with_principles(criteria or _DEFAULT_CRITERION)
        by_criteria = lines(resolve_pairwise_criteria(chosen))
        name = "score_string" if criteria is None else f"score_string:{_name_of(chosen)}"
        made = cls(name, model_of(llm, llm_kwargs), partial(rubric, metadata=None, rubric=by_criteria, scale=_SCALE))
        made._divisor = normalize_by or 1
        return made

    async def _result_by(self, model: ByComplete | ByInvoke, **arguments: Any) -> dict[str, Any]:
        result = await super()._result_by(model, **arguments)
        score = result["score"] / self._divisor if self._divisor != 1 else result["score"]
        return result | {"value": score, "score": score}


class LabeledScoreStringEvalChain(ScoreStringEvalChain):
    """`ScoreStringEvalChain` with a correct reference."""

    requires_reference = True


class TrajectoryEval(TypedDict):
    """How well an agent proceeded."""

    score: float
    reasoning: str


class TrajectoryOutputParser:
    """Parses a line `Score: 4` at the end of a text."""

    def parse(self, text: str) -> TrajectoryEval:
        """Return the score from 1 to 5 as a share. Raise OutputParserException, a ValueError, if there is none."""
        found = re.search(r"\bScore:\s*([1-5])\s*$", text)
        if found is None:
            raise _parser_error()(f"llm: got {short(text)}, wanted a line Score: 1 to 5 at the end of its answer")
        return TrajectoryEval(score=(int(found[1]) - 1) / 4, reasoning=text[: found.start()].strip())


def _parser_error() -> type[ValueError]:
    try:
        from langchain_core.exceptions import OutputParserException  # late: LangChain need not be installed
    except ImportError:
        return ValueError
    return OutputParserException


class TrajectoryEvalChain(_Evaluator):
    """How well an agent proceeded, from 0 to 1: by `trajectory`, which sees its steps and what its tools returned."""

    range = SHARE

    def __init__(self, model: ByComplete | ByInvoke, tools: Sequence[Any]) -> None:
        self._model, self._tools = model, [{"name": tool.name, "description": tool.description} for tool in tools]

    @classmethod
    def from_llm(
        cls, llm: Any = None, agent_tools: Sequence[Any] | None = None, llm_kwargs: Any = None, **options: Any
    ) -> Self:
        refuse("load_evaluator", options)
        return cls(model_of(llm, llm_kwargs), agent_tools or ())

    def __call__(self, given: Mapping[str, Any]) -> TrajectoryEval:
        """Judge `{"question", "answer", "agent_trajectory"}`, with a `reference` if there is one."""
        return self.evaluate_agent_trajectory(
            prediction=given["answer"],
            input=given["question"],
            agent_trajectory=given["agent_trajectory"],
            reference=given.get("reference"),
        )

    def evaluate_agent_trajectory(self, **arguments: Any) -> TrajectoryEval:
        """Judge an answer and the steps before it: pairs of an action (`tool`, `tool_input`, `log`) and its result.

        Args:
            arguments: prediction, input, agent_trajectory, and a reference if there is one.

        Raise InputError on the event loop of the model calls, which cannot wait for itself.
        """
        _check_can_wait("evaluate_agent_trajectory")
        return loop.run(self._result_by(_in_a_thread(self._model), **arguments))

    async def aevaluate_agent_trajectory(self, **arguments: Any) -> TrajectoryEval:
        """Like `evaluate_agent_trajectory`, for async callers."""
        return await self._result_by(self._model, **arguments)

    async def _result_by(
        self,
        model: ByComplete | ByInvoke,
        *,
        prediction: str,
        input: str,  # noqa: A002
        agent_trajectory: Sequence[tuple[Any, Any]],
        reference: str | None = None,
        **options: Any,
    ) -> TrajectoryEval:
        refuse("evaluate_agent_trajectory", options)
        messages = [message for number, step in enumerate(agent_trajectory) for message in _messages_of(number, *step)]
        sides = {
            "inputs": {"input": input} | ({"tools": self._tools} if self._tools else {}),
            "outputs": {"messages": [*messages, {"role": "assistant", "content": prediction}]},
            "reference_outputs": None if reference is None else {"output": reference},
        }
        judgement = await _judged(partial(trajectory, metadata=None), model, TrajectoryOutputParser().parse, **sides)
        if isinstance(judgement, dict):
            return TrajectoryEval(score=judgement["score"], reasoning=judgement["reasoning"])
        return TrajectoryEval(score=((judgement.value or 1) - 1) / 4, reasoning=judgement.comment or "")


def _messages_of(number: int, action: Any, result: Any) -> list[dict[str, Any]]:
    given = action.tool_input if isinstance(action.tool_input, Mapping) else {"input": action.tool_input}
    call = {"id": f"step-{number}", "type": "function", "function": {"name": action.tool, "arguments": to_json(given)}}
    return [
        {"role": "assistant", "content": action.log, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": str(result)},
    ]


class _Rule(StringEvaluator):
    """A rule: `_score` judges a text, with the reference if it needs one."""

    def _evaluate_strings(
        self,
        *,
        prediction: Any,
        reference: Any = None,
        input: Any = None,  # noqa: A002
        **options: Any,
    ) -> dict[str, Any]:
        refuse("evaluate_strings", options)
        return self._score(prediction, reference)

    @abstractmethod
    def _score(self, prediction: Any, reference: Any) -> dict[str, Any]: ...


class ExactMatchStringEvaluator(_Rule):
    """Whether a text equals the reference."""

    _name, requires_reference = "exact_match", True

    def __init__(self, *, ignore_case: bool = False) -> None:
        self.ignore_case = ignore_case

    def _score(self, prediction: Any, reference: Any) -> dict[str, Any]:
        sides = {"output": prediction}, {"output": reference}
        return {"score": int(bool(exact_match(*sides, ignore_case=self.ignore_case, strip=False)))}


class RegexMatchStringEvaluator(_Rule):
    """Whether the reference, a pattern, occurs in a text."""

    _name, requires_reference = "regex_match", True

    def __init__(self, *, flags: int = 0) -> None:
        letters = {re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s", re.VERBOSE: "x", re.ASCII: "a"}
        self._prefix = "".join(f"(?{letter})" for flag, letter in letters.items() if flags & flag)

    def _score(self, prediction: Any, reference: Any) -> dict[str, Any]:
        return {"score": int(regex({"output": prediction}, pattern=f"{self._prefix}{reference}"))}


class JsonValidityEvaluator(_Rule):
    """Whether a text is JSON."""

    _name = "json_validity"

    def _score(self, prediction: Any, reference: Any) -> dict[str, Any]:
        return _of_rule(json_valid({"output": prediction}), int)


class JsonSchemaEvaluator(_Rule):
    """Whether a text is JSON that fits the reference, a schema."""

    _name, requires_reference = "json_schema_validation", True

    def _score(self, prediction: Any, reference: Any) -> dict[str, Any]:
        schema = read_json(reference) if isinstance(reference, str) else reference
        return _of_rule(json_valid({"output": prediction}, schema=schema), bool)


def _of_rule(score: Score, kind: Callable[[Any], Any]) -> dict[str, Any]:
    return {"score": kind(score.value)} | ({"reasoning": score.comment} if score.comment else {})


class _JsonEvaluator(_Rule):
    requires_reference = True

    def _parse_json(self, text: Any) -> Any:
        """Return the value of a text. Raise ValueError if it is not JSON."""
        return read_json(text, fenced=True) if isinstance(text, str) else text


class JsonEqualityEvaluator(_JsonEvaluator):
    """Whether two values in JSON are equal, or `operator` holds for them; the items of a list may have any order."""

    _name = "json_equality"

    def __init__(self, operator: Callable[[Any, Any], bool] | None = None) -> None:
        self._operator = operator

    def _score(self, prediction: Any, reference: Any) -> dict[str, Any]:
        one, other = self._parse_json(prediction), self._parse_json(reference)
        if self._operator is not None:
            return {"score": self._operator(one, other)}
        one, other = (sorted(map(to_json, each)) if isinstance(each, list) else to_json(each) for each in (one, other))
        return {"score": one == other}


class JsonEditDistanceEvaluator(_JsonEvaluator):
    """The edit distance of two values as JSON, as a share from 0 (equal) to 1."""

    _name, higher_is_better, range = "json_edit_distance", False, SHARE

    def __init__(self, string_distance: Callable[[str, str], float] | None = None) -> None:
        self._distance = string_distance or edit_distance

    def _score(self, prediction: Any, reference: Any) -> dict[str, Any]:
        return {"score": self._distance(*(to_json(self._parse_json(text)) for text in (prediction, reference)))}


class StringDistance(StrEnum):
    """How the distance of two texts is measured."""

    DAMERAU_LEVENSHTEIN = "damerau_levenshtein"
    LEVENSHTEIN = "levenshtein"
    JARO = "jaro"
    JARO_WINKLER = "jaro_winkler"
    HAMMING = "hamming"
    INDEL = "indel"


class EmbeddingDistance(StrEnum):
    """How the distance of two vectors is measured."""

    COSINE = "cosine"
    EUCLIDEAN = "euclidean"
    MANHATTAN = "manhattan"
    CHEBYSHEV = "chebyshev"
    HAMMING = "hamming"


class _Edits:
    def __init__(self, *, distance: str | None = None, normalize_score: bool = True) -> None:
        self.distance, self.normalize_score = distance or StringDistance.JARO_WINKLER, normalize_score
        self.range = SHARE if normalize_score else None

    def _between(self, first: str, second: str) -> float:
        return edit_distance(first, second, _value_of(self.distance), normalised=self.normalize_score)


class _Vectors:
    def __init__(self, *, distance_metric: str | None = None, embeddings: Any = None) -> None:
        self.distance_metric, self.embeddings = distance_metric or EmbeddingDistance.COSINE, embeddings

    def _compute_score(self, vectors: Any) -> float:
        return vector_distance(vectors, _value_of(self.distance_metric))

    def _between(self, first: str, second: str) -> float:
        embed = openai_embedding if self.embeddings is None else self.embeddings.embed_documents
        return self._compute_score(embed([first, second]))


def _value_of(metric: str) -> str:
    """Return a metric's name, also of a member of LangChain's own enumeration."""
    return str(getattr(metric, "value", metric))


class _FromReference(_Rule):
    requires_reference, higher_is_better = True, False
    _between: Callable[[str, str], float]

    def _score(self, prediction: Any, reference: Any) -> dict[str, Any]:
        return {"score": self._between(str(prediction), str(reference))}


class _BetweenTwo(PairwiseStringEvaluator):
    _between: Callable[[str, str], float]

    def _evaluate_string_pairs(self, **arguments: Any) -> dict[str, Any]:
        return {"score": self._between(arguments["prediction"], arguments["prediction_b"])}


class StringDistanceEvalChain(_Edits, _FromReference):
    """How far a text is from the reference, by edits."""

    _name = "string_distance"


class PairwiseStringDistanceEvalChain(_Edits, _BetweenTwo):
    """How far two texts are from each other, by edits. Neither is the better one."""

    _name = "pairwise_string_distance"


class EmbeddingDistanceEvalChain(_Vectors, _FromReference):
    """How far a text's vector is from the reference's."""

    _name = "embedding_distance"


class PairwiseEmbeddingDistanceEvalChain(_Vectors, _BetweenTwo):
    """How far the vectors of two texts are from each other. Neither is the better one."""

    _name = "pairwise_embedding_distance"


def completing(model: ByComplete | ByInvoke, hear: Callable[[str], object]) -> Complete:
    """Return `complete` of a model, as the evaluators of this project call it.

    A model with `invoke` is asked for tagged text, from which the fields are read; `hear` gets each text.
    """

    async def complete(messages: Any, *, schema: Any = None, **parameters: Any) -> Completion:
        if model.takes_schema or schema is None:
            answer = await model.aask(messages, schema)
            return Completion(text=answer.text, parsed=answer.fields, model="", call_id="")
        body = with_response_format({"messages": [{"role": "user", "content": messages}]}, schema, "text")
        answer = await model.aask("\n\n".join(str(message["content"]) for message in body["messages"]), None)
        hear(answer.text)
        fields = read_answer({"content": answer.text}, schema, "text", None)
        return Completion(text=answer.text, parsed=fields, model="", call_id="")

    return complete


def _name_of(chosen: Any) -> str:
    """Return the metric of criteria: the only one's name, else `criteria`."""
    if isinstance(chosen, str):
        return str(chosen)
    if isinstance(chosen, Mapping):
        return str(next(iter(chosen))) if len(chosen) == 1 else "criteria"
    return str(getattr(chosen, "name", "criteria"))


class PairwiseStringResultOutputParser:
    """Parses a verdict from a text."""

    def parse(self, text: str) -> dict[str, Any]:
        """Return the verdict of the last `[[A]]`, `[[B]]` or `[[C]]`, with the whole text as the reasoning.

        A tag next to a quotation mark is ignored as a quotation, unless it is alone on its line. Raise ValueError if
        there is no tag, or the last one is not A, B or C. Quotations without quotation marks are not detected.
        """
        own = [tag for tag in _TAG.finditer(text) if not _is_quoted(tag)]
        verdict = own[-1][1].strip() if own else None
        if verdict is None or verdict not in WORTH:
            raise ValueError(f"llm: got {short(text)}, wanted [[A]], [[B]] or [[C]] at the end of its answer")
        return _verdict_result(text, verdict)


def result_of_fields(answer: object) -> dict[str, Any]:
    """Return the result of an answer in the schema's fields. Raise ValueError if it does not match the schema."""
    fields = answer if isinstance(answer, Mapping) else {}
    verdict, reasoning = fields.get("verdict"), fields.get("reasoning")
    if not isinstance(verdict, str) or verdict not in WORTH or not isinstance(reasoning, str):
        raise ValueError(f"llm: got {short(answer)}, wanted a reasoning and a verdict of A, B or C")
    return _verdict_result(reasoning, verdict)


def _verdict_result(reasoning: str, verdict: str) -> dict[str, Any]:
    return {"reasoning": reasoning, "value": None if verdict == "C" else verdict, "score": WORTH[verdict]}


def _is_quoted(tag: re.Match[str]) -> bool:
    text = tag.string
    before, after = text[: tag.start()].rpartition("\n")[2], text[tag.end() :].partition("\n")[0]
    is_alone = not re.search(r"\w", before + after)
    return not is_alone and bool(_OPENED.search(before) or _CLOSED.match(after))


class PairwiseStringEvalChain(PairwiseStringEvaluator):
    """Which of two texts a model prefers: {"reasoning", "value": "A", "B" or None, "score": 1, 0 or 0.5}.

    Without a reference it cannot judge correctness. It does not detect position bias: the model is asked once, in the
    given order.
    """

    requires_input = True
    _default = PLAIN

    def __init__(self, *, model: ByComplete | ByInvoke, prompt: Any, criteria: str, output_parser: Any) -> None:
        self.prompt, self.output_parser = prompt, output_parser
        self._model, self._criteria = model, criteria

    @classmethod
    def from_llm(
        cls,
        llm: Any = None,
        *,
        prompt: Any = None,
        criteria: Any = None,
        output_parser: Any = None,
        llm_kwargs: dict[str, Any] | None = None,
        **options: Any,
    ) -> Self:
        """Build the evaluator, as `load_evaluator` does.

        Raise ValueError for invalid criteria or prompts; InputError for an invalid model and for LangChain's other
        options, which have no meaning here.
        """
        refuse("load_evaluator", options)
        if output_parser is not None and not callable(getattr(output_parser, "parse", None)):
            raise InputError(f"output_parser: got {short(output_parser)}, wanted an object with parse")
        criteria_text = lines(resolve_pairwise_criteria(criteria))
        template = None if prompt is None else as_prompt(prompt)
        if template is not None:
            reference = ["reference"] if cls.requires_reference else []
            variables, wanted = sorted({*template.input_variables}), ["criteria", "input", "prediction", "prediction_b"]
            if variables != [*wanted, *reference]:
                got = ", ".join(variables) or "none"
                raise ValueError(f"prompt: got the variables {got}, wanted {', '.join([*wanted, *reference])}")
        model = model_of(llm, llm_kwargs)
        if template is None and output_parser is None and model.takes_schema:
            default = cls._default_prompt(AS_FIELDS, criteria_text)
            return cls(model=model, prompt=default, criteria=criteria_text, output_parser=None)
        own = cls._default_prompt(AS_TAG, criteria_text) if template is None else template
        if template is not None and hasattr(template, "partial"):
            own = template.partial(criteria=criteria_text)
        parser = output_parser or PairwiseStringResultOutputParser()
        return cls(model=model, prompt=own, criteria=criteria_text, output_parser=parser)

    @classmethod
    def _default_prompt(cls, verdict: str, criteria: str) -> PromptTemplate:
        return PromptTemplate.from_template(cls._default).partial(criteria=criteria, verdict=verdict)

    def _evaluate_string_pairs(self, **arguments: Any) -> dict[str, Any]:
        return self._result(self._model.ask(self._request(**arguments), self._schema))

    async def _aevaluate_string_pairs(self, **arguments: Any) -> dict[str, Any]:
        return self._result(await self._model.aask(self._request(**arguments), self._schema))

    @property
    def _schema(self) -> Any:
        return SCHEMA if self.output_parser is None else None

    def _request(
        self,
        *,
        prediction: str,
        prediction_b: str,
        reference: str | None,
        input: str,  # noqa: A002
        **options: Any,
    ) -> Request:
        refuse("evaluate_string_pairs", options)
        sides = {"prediction": prediction, "prediction_b": prediction_b, "input": input, "reference": reference}
        texts = {name: fenced(side) for name, side in sides.items() if side is not None}
        return filled(self.prompt, texts | {"criteria": self._criteria})

    def _result(self, answer: Answer) -> dict[str, Any]:
        if self.output_parser is None:
            return result_of_fields(answer.fields)
        result: dict[str, Any] = self.output_parser.parse(answer.text)
        return result


class LabeledPairwiseStringEvalChain(PairwiseStringEvalChain):
    """`PairwiseStringEvalChain` with a correct reference."""

    requires_reference = True
    _default = LABELLED


_KINDS: Mapping[str, type[PairwiseStringEvalChain]] = {
    EvaluatorType.PAIRWISE_STRING: PairwiseStringEvalChain,
    EvaluatorType.LABELED_PAIRWISE_STRING: LabeledPairwiseStringEvalChain,
}
Judges = QAEvalChain | CriteriaEvalChain | ScoreStringEvalChain | TrajectoryEvalChain

JUDGES: Mapping[str, tuple[type[Judges], set[str]]] = {
    "qa": (QAEvalChain, {"llm_kwargs"}),
    "cot_qa": (CotQAEvalChain, {"llm_kwargs"}),
    "context_qa": (ContextQAEvalChain, {"llm_kwargs"}),
    "criteria": (CriteriaEvalChain, {"criteria", "llm_kwargs"}),
    "labeled_criteria": (LabeledCriteriaEvalChain, {"criteria", "llm_kwargs"}),
    "score_string": (ScoreStringEvalChain, {"criteria", "normalize_by", "llm_kwargs"}),
    "labeled_score_string": (LabeledScoreStringEvalChain, {"criteria", "normalize_by", "llm_kwargs"}),
    "trajectory": (TrajectoryEvalChain, {"agent_tools", "llm_kwargs"}),
}
"""LangChain's names of evaluators that ask a model, and for each its class and settings."""
RULES: Mapping[str, tuple[Callable[..., _Evaluator], set[str]]] = {
    "exact_match": (ExactMatchStringEvaluator, {"ignore_case"}),
    "regex_match": (RegexMatchStringEvaluator, {"flags"}),
    "json_validity": (JsonValidityEvaluator, set()),
    "json_equality": (JsonEqualityEvaluator, {"operator"}),
    "json_edit_distance": (JsonEditDistanceEvaluator, {"string_distance"}),
    "json_schema_validation": (JsonSchemaEvaluator, set()),
    "string_distance": (StringDistanceEvalChain, {"distance", "normalize_score"}),
    "embedding_distance": (EmbeddingDistanceEvalChain, {"distance_metric", "embeddings"}),
    "pairwise_string_distance": (PairwiseStringDistanceEvalChain, {"distance", "normalize_score"}),
    "pairwise_embedding_distance": (PairwiseEmbeddingDistanceEvalChain, {"distance_metric", "embeddings"}),
}
"""The same of those that ask none."""


@overload
def load_evaluator(
    evaluator: Literal["pairwise_string", "labeled_pairwise_string"], *, llm: Any = None, **settings: Any
) -> PairwiseStringEvalChain: ...


@overload
def load_evaluator(evaluator: EvaluatorType | str, *, llm: Any = None, **settings: Any) -> Any: ...


def load_evaluator(evaluator: EvaluatorType | str, *, llm: Any = None, **settings: Any) -> Any:
    """Load an evaluator of one text, or one that compares two; `labeled_…` ones use a reference.

    `llm` is a connection's name (default `openai`), a `complete` function, or an object with `invoke`.
    Settings of comparisons: `criteria` (a member of Criteria, a name, a mapping from names to texts, a principle, a
    list of these), `prompt` (a text or a template), `output_parser` (an object with `parse`), `llm_kwargs` (parameters
    of the model). Those of other evaluators are listed in docs/guides/langchain.md.

    Raise InputError for any other evaluator or an unusable model, ValueError for an invalid prompt or criteria.
    """
    if not isinstance(evaluator, str) or evaluator not in {*_KINDS, *JUDGES, *RULES}:
        names = ", ".join([*_KINDS, *JUDGES, *RULES])
        raise InputError(f"load_evaluator: got {short(evaluator)}, wanted one of {names}")
    given = {name: value for name, value in settings.items() if value is not None}
    if evaluator not in _KINDS:
        known = (JUDGES.get(evaluator) or RULES[evaluator])[1]
        if unknown := given.keys() - known:
            wanted = f"only {', '.join(sorted(known))}" if known else "no settings"
            raise InputError(f"load_evaluator: {evaluator!s}: got {min(unknown)!r}, wanted {wanted}")
    if evaluator in JUDGES:
        return JUDGES[evaluator][0].from_llm(llm, **given)
    if evaluator in RULES:
        return RULES[evaluator][0](**given)
    return _KINDS[evaluator].from_llm(llm, **settings)


def load_evaluators(
    evaluators: Sequence[EvaluatorType | str],
    *,
    llm: Any = None,
    config: Mapping[Any, Mapping[str, Any]] | None = None,
    **settings: Any,
) -> list[Any]:
    """Load several evaluators. `config` holds settings per evaluator name, which take precedence over `settings`."""
    own = config or {}
    return [load_evaluator(name, llm=llm, **{**settings, **own.get(name, {})}) for name in evaluators]


def __getattr__(name: str) -> Any:
    if name == "PRINCIPLES":
        raise ImportError(f"{__name__}.PRINCIPLES: not supported here: use {REMEDY}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
