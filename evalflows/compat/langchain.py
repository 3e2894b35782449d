"""LangChain's evaluators of one text, by the evaluators of this project that judge the same."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalflows.compat.langchain.distances import edit_distance, embedding_distance
from evalflows.compat.langchain.models import ByComplete, ByInvoke, model_of
from evalflows.compat.langchain.principles import refuse_principles
from evalflows.evaluators import correctness, criteria, exact_match, json_valid, regex, rubric
from evalflows.evaluators.judges.criterion import HARMS, criteria_of
from evalflows.evaluators.score import Judgement, normalise
from evalflows.llm import loop
from evalflows.llm.structured_output import read_answer, with_response_format
from evalflows.specs.errors import InputError, short
from evalflows.specs.protocols import Complete, Completion

Judge = Callable[..., Awaitable[Any]]

_SCALE = (1, 10)
_DEFAULT_CRITERION = "helpfulness"


@dataclass(frozen=True, kw_only=True)
class StringEvaluator:
    """Judges a text: `evaluate_strings` returns {"score", "value", "reasoning"}; None if it does not apply.

    `evaluation_name` is the metric; `higher_is_better` is false for distances and harms.
    """

    evaluation_name: str
    judge: Judge  # of inputs, outputs and reference_outputs, as the evaluators of this project
    requires_input: bool = False
    requires_reference: bool = False
    higher_is_better: bool = True

    def evaluate_strings(
        self,
        *,
        prediction: Any,
        reference: Any = None,
        input: Any = None,  # noqa: A002
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Judge a text. Raises ValueError if the input or reference is required but missing.

        Raises InputError on the event loop of the model calls, which cannot wait for itself, and for other arguments.
        """
        if threading.current_thread().name == "evalflows-calls":
            raise InputError("evaluate_strings: got a call from an async function, wanted aevaluate_strings")
        return loop.run(self.aevaluate_strings(prediction=prediction, reference=reference, input=input, **kwargs))

    async def aevaluate_strings(
        self,
        *,
        prediction: Any,
        reference: Any = None,
        input: Any = None,  # noqa: A002
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Like `evaluate_strings`, for async callers."""
        if kwargs:
            raise InputError(f"evaluate_strings: got {min(kwargs)!r}, wanted only prediction, reference and input")
        for name, is_required, text in (
            ("input", self.requires_input, input),
            ("reference", self.requires_reference, reference),
        ):
            if is_required and text is None:
                raise ValueError(f"{self.evaluation_name} requires {'an' if name == 'input' else 'a'} {name} string.")
        returned = await self.judge(
            inputs={} if input is None else {"input": input},
            outputs={"output": prediction},
            reference_outputs=None if reference is None else {"output": reference},
        )
        return _result(normalise(returned, self.evaluation_name)[0])


def _result(judgement: Judgement) -> dict[str, Any]:
    value, is_bool = judgement.value, judgement.data_type == "BOOLEAN"
    whole = int(value) if value is not None and value.is_integer() else value
    spelled = ("Y" if value else "N") if is_bool else whole
    return {"reasoning": judgement.comment, "value": spelled, "score": whole}


def load_string_evaluator(kind: str, llm: Any, settings: Mapping[str, Any]) -> StringEvaluator:
    """Return an evaluator of one text by LangChain's name for it.

    Raises InputError for settings that it does not have and for an unusable model, ValueError for invalid criteria.
    """
    build, known = KINDS[kind]
    if unknown := {name for name, value in settings.items() if value is not None} - known:
        wanted = f"only {', '.join(sorted(known))}" if known else "no settings"
        raise InputError(f"load_evaluator: {kind}: got {min(unknown)!r}, wanted {wanted}")
    return build(kind, llm, settings)


def _qa(kind: str, llm: Any, settings: Mapping[str, Any]) -> StringEvaluator:
    complete = completing(model_of(llm, settings.get("llm_kwargs")))

    async def judge(**sides: Any) -> Any:
        return await correctness(complete=complete, **sides)

    return StringEvaluator(evaluation_name="correctness", judge=judge, requires_input=True, requires_reference=True)


def _criteria(kind: str, llm: Any, settings: Mapping[str, Any]) -> StringEvaluator:
    labelled, chosen = kind.startswith("labeled"), settings.get("criteria") or _DEFAULT_CRITERION
    refuse_principles(chosen)
    criteria_of(_as_ours(chosen))  # raises ValueError before anything is asked
    complete = completing(model_of(llm, settings.get("llm_kwargs")))
    name = _name_of(chosen)

    async def judge(**sides: Any) -> Any:
        own = sides if labelled else sides | {"reference_outputs": None}
        return await criteria(metadata=None, complete=complete, criteria=_as_ours(chosen), labelled=labelled, **own)

    return StringEvaluator(
        evaluation_name=name,
        judge=judge,
        requires_input=True,
        requires_reference=labelled,
        higher_is_better=name not in HARMS,
    )


def _score(kind: str, llm: Any, settings: Mapping[str, Any]) -> StringEvaluator:
    labelled, chosen = kind.startswith("labeled"), settings.get("criteria") or _DEFAULT_CRITERION
    refuse_principles(chosen)
    complete, divisor = completing(model_of(llm, settings.get("llm_kwargs"))), settings.get("normalize_by")
    lines = "\n".join(_lines(chosen))

    async def judge(**sides: Any) -> Any:
        own = sides if labelled else sides | {"reference_outputs": None}
        scores = await rubric(metadata=None, complete=complete, rubric=lines, scale=_SCALE, **own)
        first = normalise(scores, "score_string")[0]
        value = first.value if divisor is None or first.value is None else first.value / divisor
        return {"score": value, "comment": first.comment}

    name = "score_string" if settings.get("criteria") is None else f"score_string:{_name_of(chosen)}"
    return StringEvaluator(evaluation_name=name, judge=judge, requires_input=True, requires_reference=labelled)


def _exact(kind: str, llm: Any, settings: Mapping[str, Any]) -> StringEvaluator:
    async def judge(inputs: Any, outputs: Any, reference_outputs: Any) -> Any:
        ignore_case = bool(settings.get("ignore_case"))
        return exact_match(outputs, reference_outputs, ignore_case=ignore_case, strip=False)

    return StringEvaluator(evaluation_name=kind, judge=judge, requires_reference=True)


def _regex(kind: str, llm: Any, settings: Mapping[str, Any]) -> StringEvaluator:
    async def judge(inputs: Any, outputs: Any, reference_outputs: Any) -> Any:
        return regex(outputs, pattern=str(reference_outputs["output"]))

    return StringEvaluator(evaluation_name=kind, judge=judge, requires_reference=True)


def _json(kind: str, llm: Any, settings: Mapping[str, Any]) -> StringEvaluator:
    async def judge(inputs: Any, outputs: Any, reference_outputs: Any) -> Any:
        return json_valid(outputs)

    return StringEvaluator(evaluation_name=kind, judge=judge)


def _edit_distance(kind: str, llm: Any, settings: Mapping[str, Any]) -> StringEvaluator:
    metric, normalised = settings.get("distance") or "jaro_winkler", settings.get("normalize_score", True)

    async def judge(inputs: Any, outputs: Any, reference_outputs: Any) -> Any:
        texts = str(outputs["output"]), str(reference_outputs["output"])
        return edit_distance(*texts, str(getattr(metric, "value", metric)), normalised=normalised)

    return StringEvaluator(evaluation_name=kind, judge=judge, requires_reference=True, higher_is_better=False)


def _embedding_distance(kind: str, llm: Any, settings: Mapping[str, Any]) -> StringEvaluator:
    metric, model = settings.get("distance_metric") or "cosine", settings.get("embeddings")
    encoder = None if model is None else model.embed_documents

    async def judge(inputs: Any, outputs: Any, reference_outputs: Any) -> Any:
        texts = str(outputs["output"]), str(reference_outputs["output"])
        metric_name = str(getattr(metric, "value", metric))
        # In a thread: the default encoder waits for the loop of the calls, on which this may run.
        return await asyncio.to_thread(embedding_distance, *texts, metric_name, encoder)

    return StringEvaluator(evaluation_name=kind, judge=judge, requires_reference=True, higher_is_better=False)


KINDS: Mapping[str, tuple[Callable[[str, Any, Mapping[str, Any]], StringEvaluator], set[str]]] = {
    "qa": (_qa, {"llm_kwargs"}),
    "cot_qa": (_qa, {"llm_kwargs"}),
    "criteria": (_criteria, {"criteria", "llm_kwargs"}),
    "labeled_criteria": (_criteria, {"criteria", "llm_kwargs"}),
    "score_string": (_score, {"criteria", "normalize_by", "llm_kwargs"}),
    "labeled_score_string": (_score, {"criteria", "normalize_by", "llm_kwargs"}),
    "exact_match": (_exact, {"ignore_case"}),
    "regex_match": (_regex, set()),
    "json_validity": (_json, set()),
    "string_distance": (_edit_distance, {"distance", "normalize_score"}),
    "embedding_distance": (_embedding_distance, {"distance_metric", "embeddings"}),
}
"""LangChain's names, and for each the function that builds the evaluator, and its settings."""


def completing(model: ByComplete | ByInvoke) -> Complete:
    """Return `complete` of a model, as the evaluators of this project call it.

    A model with `invoke` is asked for tagged text, from which the fields are read.
    """

    async def complete(messages: Any, *, schema: Any = None, **parameters: Any) -> Completion:
        if model.takes_schema or schema is None:
            answer = await model.aask(messages, schema)
            return Completion(text=answer.text, parsed=answer.fields, model="", call_id="")
        body = with_response_format({"messages": [{"role": "user", "content": messages}]}, schema, "text")
        answer = await model.aask(_as_text(body["messages"]), None)
        return Completion(
            text=answer.text, parsed=read_answer({"content": answer.text}, schema, "text", None), model="", call_id=""
        )

    return complete


def _as_text(messages: Sequence[Mapping[str, Any]]) -> str:
    return "\n\n".join(str(message["content"]) for message in messages)


def _name_of(chosen: Any) -> str:
    """Return the metric of criteria: the only one's name, else `criteria`."""
    if isinstance(chosen, str):
        return str(chosen)
    if isinstance(chosen, Mapping):
        return str(next(iter(chosen))) if len(chosen) == 1 else "criteria"
    return str(getattr(chosen, "name", "criteria"))


def _as_ours(chosen: Any) -> Any:
    return str(chosen) if isinstance(chosen, str) else chosen


def _lines(chosen: Any) -> list[str]:
    from evalflows.compat.langchain.criteria import resolve_pairwise_criteria

    try:
        return [
            f"- {name}: {text}" if text else f"- {name}" for name, text in resolve_pairwise_criteria(chosen).items()
        ]
    except ValueError as error:
        raise ValueError(f"{error}, got {short(chosen)}") from error
