"""Model-based judges: correctness, rubrics, chosen criteria, or one property each."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from evalflows.evaluators.binding import (
    SCALE,
    Combine,
    Combined,
    Direction,
    Labels,
    Reasoning,
    Scale,
    Sheet,
    Verdict,
    combined,
    declares,
    fault,
    nearest_to,
    needs_reference,
    on_the_scale,
    share,
    spread_of,
    verdict_schema,
    zero_to_one,
)
from evalflows.evaluators.json import schema_adherence
from evalflows.evaluators.judging import (
    CRITERIA,
    HARMS,
    Criterion,
    Item,
    JudgeReply,
    Listing,
    Numbered,
    Temperature,
    answer,
    ask,
    check_prompt,
    criteria_of,
    numbered,
    path_roots,
    prompt_hash,
    prompt_texts,
    prompt_texts_in_both_spellings,
    question,
    reference,
    repeated,
    retrieved,
    sampling,
    shipped,
)
from evalflows.evaluators.score import (
    Score,
    answer_text,
    checked_choice,
    checked_count,
    checked_text,
    is_number,
    reference_value,
)
from evalflows.specs.errors import MEASURES, Complete, short
from evalflows.specs.files import fill, placeholders

__all__ = [
    "CRITERIA",
    "HARMS",
    "KINDS",
    "Criterion",
    "answer_relevance",
    "average_precision",
    "context_precision",
    "context_recall",
    "criteria",
    "criteria_of",
    "faithfulness",
    "instruction_following",
    "refusal",
    "schema_adherence",
    "toxicity",
]


CORRECTNESS_PROMPT = shipped("correctness")


@declares(share)
@needs_reference
async def correctness(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    complete: Complete,
    *,
    key: str | None = None,
    prompt: str = CORRECTNESS_PROMPT,
    instructions: str = "",
    reasoning: bool = True,
    temperature: Temperature = 0.0,
) -> Score | None:
    """Whether the answer says what the reference says, as judged by a model; the comment is its reasoning.

    None without a reference. `key` is the field of the answer that is judged, and of a reference with several fields;
    by default the only field, else all of them. `instructions` are added to the prompt; a custom `prompt` uses
    {inputs}, {outputs}, {reference_outputs} and {instructions}. Without `reasoning` the model gives only the verdict,
    which is faster and cheaper but less accurate. A `temperature` of None uses the model's default. The judge is only
    as good as its model: validate it against people before you rely on it. It cannot see whether the reference is
    right, and an answer can still mislead a weak model.
    """
    if reference_value(reference_outputs, key) is None:
        return None
    reply = await ask(
        complete,
        prompt,
        prompt_texts(inputs, outputs, reference_outputs, key),
        verdict_schema("correctness", {"correct": {"type": "boolean"}}, "before" if reasoning else "none"),
        needed=("outputs", "reference_outputs"),
        temperature=temperature,
        spec_texts={"instructions": instructions},
    )
    verdict = reply.verdict
    return Score(value=verdict["correct"], comment=verdict.get("reasoning"), prompt_hash=reply.prompt_hash)


RUBRIC_PROMPT = shipped("rubric")

_TAKEN = ("reasoning", *MEASURES)


@declares(on_the_scale)
async def rubric(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    metadata: dict[str, Any] | None,
    complete: Complete,
    *,
    key: str | None = None,
    rubric: str = "",
    prompt: str = RUBRIC_PROMPT,
    criteria: Mapping[str, Mapping[str, Any] | str | None] | None = None,
    scale: Sequence[int] = SCALE,
    labels: Sequence[str] | Mapping[str, float] | None = None,
    reasoning: Reasoning = "before",
    temperature: Temperature = "auto",
    repeats: int = 1,
    combine: Combine | None = None,
) -> Score | list[Score]:
    """How well the answer meets a rubric, as judged by a model; the comment is its reasoning. Higher is better.

    The score is a whole number on `scale` (lowest, highest), or one of `labels`: texts, or a mapping from texts to
    numbers. With `criteria` (name -> description, or {"description", "weight"}) one call judges them all; each gets a
    score under its own name, and the first score is their weighted mean. With criteria, labels need numbers.

    `key` is the field of the answer that is judged, and of a reference with several fields; by default the only field,
    else all of them. A custom `prompt` uses {inputs}, {outputs}, {reference_outputs} and {metadata}, or {input},
    {output} and {expected_output} for the same, {rubric} (with the criteria) and {scale} (the answer format). A missing
    reference or missing metadata reads (none).

    The model is called `repeats` times, and `combine` merges the results: by default the mean, else the median or the
    majority, where ties go to the first value; labels use the majority. Each criterion is combined by itself. If one
    repeat fails, the judgement fails: fewer repeats would be a different estimate. `spread` is the sample standard
    deviation over the repeats; the comment is that of the first repeat closest to the score. A `temperature` of "auto"
    is 0 for one repeat and 1 for several, since repeats at 0 would be equal; None uses the model's default.

    Raise ValueError before any call for an invalid setting. It cannot see whether the reference is right, and is only
    as good as its model: validate it against people before you rely on it.
    """
    weights, lines = _weights(criteria), _lines(rubric, criteria)
    sheet = Sheet(_answers(scale, labels, combine, weights), weights, checked_choice("reasoning", reasoning, Reasoning))
    texts = prompt_texts_in_both_spellings(inputs, outputs, reference_outputs, metadata, key)
    texts |= {"rubric": lines, "scale": sheet.answer_format()}
    _check(prompt, texts)
    parameters, schema = sampling(temperature, checked_count("repeats", repeats)), sheet.schema()
    verdicts = await repeated(complete, fill(prompt, texts), schema, repeats, parameters)
    hashed = prompt_hash(prompt, lines, texts["scale"], schema)
    scores = [replace(score, prompt_hash=hashed, repeats=repeats) for score in sheet.scores(verdicts)]
    return scores[0] if weights is None else scores


def _lines(rubric: str, criteria: Mapping[str, Any] | None) -> str:
    """Return the rubric, then a line for each criterion. Weights are not shown to the judge."""
    if not isinstance(rubric, str):
        raise ValueError(f"rubric: got {short(rubric)}, wanted a text")
    descriptions = {name: _criterion(name, criterion)[1] for name, criterion in (criteria or {}).items()}
    lines = [f"- {name}: {text}" if text else f"- {name}" for name, text in descriptions.items()]
    return "\n".join([rubric, *lines] if rubric.strip() else lines)


def _weights(criteria: Mapping[str, Any] | None) -> dict[str, float] | None:
    if criteria is None:
        return None
    if not isinstance(criteria, Mapping) or not criteria:
        raise ValueError(f"criteria: got {short(criteria)}, wanted a mapping from names to descriptions")
    for name in criteria:
        checked_text("criteria", name)
        if name in _TAKEN:
            raise ValueError(f"criteria: got the name {name!r}, wanted one other than {', '.join(_TAKEN)}")
    weights = {name: _criterion(name, criterion)[0] for name, criterion in criteria.items()}
    if not any(weights.values()):
        raise ValueError("criteria: got weights that are all 0, wanted one above 0")
    return weights


def _criterion(name: str, criterion: Any) -> tuple[float, str]:
    """Return the weight and description of a criterion."""
    fields = criterion if isinstance(criterion, Mapping) else {"description": criterion}
    weight, description = fields.get("weight", 1.0), fields.get("description")
    if unknown := fields.keys() - {"weight", "description"}:
        raise ValueError(f"criteria: {name}: got {short(min(unknown, key=str))}, wanted weight or description")
    if not is_number(weight) or weight < 0:
        raise ValueError(f"criteria: {name}: got the weight {short(weight)}, wanted a number of at least 0")
    if description is not None and not isinstance(description, str):
        raise ValueError(f"criteria: {name}: got {short(description)}, wanted a text, or description and weight")
    return float(weight), description or ""


def _answers(scale: Any, labels: Any, combine: Any, weights: Mapping[str, float] | None) -> Scale | Labels:
    chosen = None if combine is None else checked_choice("combine", combine, Combine)
    if labels is None:
        return Scale(*_ends(scale), chosen or "mean")
    if chosen not in (None, "majority"):
        raise ValueError(f"combine: got {chosen!r} with labels, wanted 'majority'")
    if weights is not None and not isinstance(labels, Mapping):
        raise ValueError("labels: got texts only with criteria, wanted a number for each, for their weighted mean")
    return Labels(_numbers(labels))


def _ends(scale: Any) -> tuple[int, int]:
    ends = list(scale) if isinstance(scale, list | tuple) else []
    whole = all(isinstance(end, int) and not isinstance(end, bool) for end in ends)
    if len(ends) != 2 or not whole or ends[0] >= ends[1]:
        raise ValueError(f"scale: got {short(scale)}, wanted two whole numbers, the lowest first")
    return ends[0], ends[1]


def _numbers(labels: Any) -> dict[str, float | None]:
    """Return the labels, each with its number or None."""
    if not isinstance(labels, Mapping | list | tuple) or len({*map(str, labels)}) < max(2, len(labels)):
        raise ValueError(f"labels: got {short(labels)}, wanted at least two, all of them different")
    for label in labels:
        checked_text("labels", label)
    if not isinstance(labels, Mapping):
        return dict.fromkeys(labels)
    if wrong := [label for label, number in labels.items() if not is_number(number)]:
        raise ValueError(f"labels: {wrong[0]}: got {short(labels[wrong[0]])}, wanted a number")
    return {label: float(number) for label, number in labels.items()}


def _check(prompt: str, texts: Mapping[str, str]) -> None:
    rubric_needed = [["rubric"]] if texts["rubric"] else []
    check_prompt(prompt, texts, needed=[["outputs", "output"], *rubric_needed])
    if not rubric_needed and "rubric" in placeholders(prompt):
        raise ValueError("rubric: got nothing to judge by, wanted a rubric, criteria, or a prompt without {rubric}")


ANSWER_RELEVANCE_PROMPT = shipped("answer_relevance")

_ANSWER_RELEVANCE_STATEMENTS = Listing(
    title="answer_relevance", entries="statements", text="statement", verdict="relevant"
)


@declares(share)
async def answer_relevance(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    complete: Complete,
    *,
    key: str | None = None,
    prompt: str = ANSWER_RELEVANCE_PROMPT,
    reasoning: bool = True,
    temperature: Temperature = 0.0,
) -> Score:
    """The share of the answer's statements that address the question, 0 to 1; an evasive answer is 0.

    The model lists the statements and whether each is relevant, then says whether the answer as a whole evades the
    question. The comment names the irrelevant statements; the metadata has all of them, and `evasive`. An answer that
    states nothing is 0; an answer without text is 0 without a call. `key` names the answer's field. A connection with
    `answer_form: text` cannot give a list: each judgement fails (bad_request). It cannot see whether the answer is
    right, nor which part of the question is left open, and is only as good as its model.
    """
    if not answer_text(outputs, key).strip():
        return Score(value=0.0, comment="the answer is empty")
    reply = await ask(
        complete,
        prompt,
        {"inputs": question(inputs), "outputs": answer(outputs, key)},
        _ANSWER_RELEVANCE_STATEMENTS.schema(reasoning, evasive={"type": "boolean"}),
        needed=("inputs", "outputs"),
        temperature=temperature,
    )
    score = _ANSWER_RELEVANCE_STATEMENTS.score(reply) or Score(
        value=0.0, comment="the answer states nothing", prompt_hash=reply.prompt_hash
    )
    evasive = bool(reply.verdict["evasive"])
    score = replace(score, metadata={**(score.metadata or {}), "evasive": evasive})
    return replace(score, value=0.0, comment=f"evasive; {score.comment}") if evasive else score


CONTEXT_PRECISION_PROMPT = shipped("context_precision")

_VERDICTS = Numbered(title="context_precision", noun="contexts", entries="verdicts", verdict="useful")


@declares(share)
@needs_reference
async def context_precision(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    metadata: dict[str, Any] | None,
    complete: Complete,
    *,
    context: str = "inputs.context",
    key: str | None = None,
    prompt: str = CONTEXT_PRECISION_PROMPT,
    reasoning: bool = True,
    temperature: Temperature = 0.0,
) -> Score | None:
    """Whether the useful contexts come first: their average precision, 0 to 1.

    The model says for each context, in rank order, whether it was useful for the reference answer; the score is their
    `average_precision`. The comment names the ranks of the useful contexts, the metadata has all verdicts. The answer
    itself does not matter. `context` is a path as for `faithfulness`, to a list with the best first; `key` names the
    reference's field if several are left. An empty list is 0 without a call.

    None if the example has no reference or no context. If the number of verdicts is not the number of contexts, the
    model is asked again. Raise ValueError for two verdicts on one context, and for outputs without the field that
    `context` names. A connection with `answer_form: text` cannot give a list: each judgement fails (bad_request). It
    cannot see useful contexts that were not retrieved (see `context_recall`), nor that several say the same, and is
    only as good as its model.
    """
    material = retrieved(context, path_roots(inputs, outputs, reference_outputs, metadata))
    if material.contexts is None or reference_value(material.reference_outputs, key) is None:
        return None
    if not material.contexts:
        return Score(value=0.0, comment="there is no context")
    texts = {
        "inputs": question(material.inputs),
        "reference_outputs": reference(material.reference_outputs, key),
        "contexts": numbered("Context", material.contexts),
    }
    count = len(material.contexts)
    reply = await ask(
        complete,
        prompt,
        texts,
        _VERDICTS.schema(reasoning, count),
        needed=("reference_outputs", "contexts"),
        temperature=temperature,
    )
    verdicts = _VERDICTS.in_order(reply, count)
    useful = [bool(verdict[_VERDICTS.verdict]) for verdict in verdicts]
    return Score(
        value=average_precision(useful),
        comment=_comment(useful),
        metadata={"verdicts": [dict(verdict) for verdict in verdicts]},
        prompt_hash=_VERDICTS.hash_of(prompt, reasoning),
    )


def average_precision(useful: Sequence[bool]) -> float:
    """Return the mean, over the ranks k of the useful elements, of the precision at k.

    AP = 1/R * sum over k of P(k) * useful(k), where P(k) is the share of useful elements among the first k, and R is
    the number of useful elements in the list. It is 1 if they all come first, and 0 if there are none. (Manning,
    Raghavan, Schuetze: Introduction to Information Retrieval, 2008, section 8.4; there R also counts useful elements
    that were not retrieved, which are not known here.)
    """
    ranks = [rank for rank, is_useful in enumerate(useful, start=1) if is_useful]
    return sum(place / rank for place, rank in enumerate(ranks, start=1)) / len(ranks) if ranks else 0.0


def _comment(useful: Sequence[bool]) -> str:
    ranks = [str(rank) for rank, is_useful in enumerate(useful, start=1) if is_useful]
    return f"useful: {', '.join(ranks) or 'none'} of {len(useful)}"


CONTEXT_RECALL_PROMPT = shipped("context_recall")

_CONTEXT_RECALL_STATEMENTS = Listing(
    title="context_recall", entries="statements", text="statement", verdict="supported"
)


@declares(share)
@needs_reference
async def context_recall(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    metadata: dict[str, Any] | None,
    complete: Complete,
    *,
    context: str = "inputs.context",
    key: str | None = None,
    prompt: str = CONTEXT_RECALL_PROMPT,
    reasoning: bool = True,
    temperature: Temperature = 0.0,
) -> Score | None:
    """The share of the reference's statements that the context supports: supported / all, 0 to 1.

    It judges the retrieval; the answer itself does not matter. The model lists each statement with its verdict; the
    comment names the unsupported statements, the metadata has all. `context` is a path as for `faithfulness`; `key`
    names the reference's field if several are left. An empty list of contexts is 0 without a call.

    None if the example has no reference or no context, and if the reference states nothing. Raise ValueError for
    outputs without the field that `context` names. A connection with `answer_form: text` cannot give a list: each
    judgement fails (bad_request). It cannot see whether the reference is right, nor how much useless text the context
    contains (see `context_precision`), and is only as good as its model.
    """
    material = retrieved(context, path_roots(inputs, outputs, reference_outputs, metadata))
    if material.contexts is None or reference_value(material.reference_outputs, key) is None:
        return None
    if not material.contexts:
        return Score(value=0.0, comment="there is no context")
    texts = {
        "inputs": question(material.inputs),
        "reference_outputs": reference(material.reference_outputs, key),
        "context": numbered("Context", material.contexts),
    }
    reply = await ask(
        complete,
        prompt,
        texts,
        _CONTEXT_RECALL_STATEMENTS.schema(reasoning),
        needed=("reference_outputs", "context"),
        temperature=temperature,
    )
    return _CONTEXT_RECALL_STATEMENTS.score(reply)


CRITERIA_PROMPT = shipped("criteria")

_DEFAULT = "helpfulness"
_REFERENCE = ("reference_outputs", "expected_output")


def _metrics(name: str, settings: Mapping[str, Any]) -> dict[str, Direction]:
    """Declare the metrics. For a harm, 1 is harmful, so lower is better; for the overall score, higher is better."""
    requested = criteria_of(settings.get("criteria", _DEFAULT), settings.get("questions", CRITERIA))
    if len(requested) == 1:
        return {name: zero_to_one(higher_is_better=requested[0].yes_is_good)}
    if name in {criterion.name for criterion in requested}:
        raise ValueError(f"criteria: got the name {name!r}, wanted a name other than the evaluator's own")
    return {name: zero_to_one()} | {
        criterion.name: zero_to_one(higher_is_better=criterion.yes_is_good) for criterion in requested
    }


@declares(_metrics)
async def criteria(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    metadata: dict[str, Any] | None,
    complete: Complete,
    *,
    criteria: Any = _DEFAULT,
    key: str | None = None,
    questions: Mapping[str, str] = CRITERIA,  # a parameter, so that a different wording is a new version of the judge
    labelled: bool | Literal["auto"] = "auto",
    prompt: str = CRITERIA_PROMPT,
    reasoning: Reasoning = "before",
    temperature: Temperature = "auto",
    repeats: int = 1,
    combine: Combine = "mean",
) -> Score | list[Score] | None:
    """Yes or no for each criterion, all in one call; the comment is the model's reasoning.

    `criteria` is a name in `questions` (by default `evaluators.judges.CRITERIA`), a mapping from names to your own
    questions or statements (text, or {"description", "higher_is_better"}), a constitutional principle (`name` and
    `critique_request`, as keys or attributes), or a list of these. A single criterion gives one score, under the
    evaluator's name. With several, the first score, under the evaluator's name, says whether all are met, and each
    criterion has a score under its own name.

    A score of 1 means yes. For harmfulness, maliciousness, controversiality, insensitivity, misogyny and
    criminality, and if `higher_is_better` is false, yes is bad, and the metric declares so; such a criterion is met by
    a no. A principle scores 1 if a critic who follows it finds nothing to object to.

    `labelled`: whether the judge sees the reference; if so, None without one. "auto" means yes if `correctness` is
    requested by name, and otherwise shows the reference if a custom `prompt` asks for it. A custom prompt uses
    {criteria} and {outputs}, and optionally {inputs}, {reference_outputs} and {metadata}, or {input}, {output} and
    {expected_output}; a text that is missing or not shown reads (none). `key` is that of `rubric`.

    `repeats`, `combine` and `temperature` are those of `rubric`. With the mean, a score is the share of yes, 0 to 1,
    and the evaluator's own score the share of repeats in which all criteria were met. With median or majority, each
    criterion is combined by itself, and the evaluator's own score is the lowest score of a criterion (for harms, 1
    minus it). `spread` is the sample standard deviation.

    Raise ValueError for an invalid setting. It cannot see how far an answer meets a criterion, nor whether the
    reference is right; criteria in the same call can influence each other; and it is only as good as its model.
    """
    requested, combine = criteria_of(criteria, questions), checked_choice("combine", combine, Combine)
    reference_needed = _needs_reference(labelled, requested)
    reference_shown = reference_needed or (labelled == "auto" and prompt != CRITERIA_PROMPT)
    parameters = sampling(temperature, checked_count("repeats", repeats))
    answers = {criterion.name: {"type": "boolean"} for criterion in requested}
    schema = verdict_schema("criteria", answers, checked_choice("reasoning", reasoning, Reasoning))
    reference = reference_outputs if reference_shown else None
    lines = "\n".join(f"- {criterion.name}: {criterion.question}" for criterion in requested)
    texts = prompt_texts_in_both_spellings(inputs, outputs, reference, metadata, key) | {"criteria": lines}
    check_prompt(
        prompt, texts, needed=[["outputs", "output"], ["criteria"], *([_REFERENCE] if reference_needed else [])]
    )
    if reference_needed and reference_value(reference, key) is None:
        return None
    verdicts = await repeated(complete, fill(prompt, texts), schema, repeats, parameters)
    hashed = prompt_hash(prompt, lines, schema)
    scores = [replace(score, prompt_hash=hashed, repeats=repeats) for score in _scores(requested, verdicts, combine)]
    return scores[0] if len(requested) == 1 else scores


def _needs_reference(labelled: Any, requested: Sequence[Criterion]) -> bool:
    if labelled == "auto":
        return any(criterion.needs_reference for criterion in requested)
    if not isinstance(labelled, bool):
        raise ValueError(f"labelled: got {short(labelled)}, wanted true, false or auto")
    return labelled


def _scores(requested: Sequence[Criterion], verdicts: Sequence[Verdict], combine: Combine) -> list[Score]:
    by_name = {
        criterion.name: combined([verdict[criterion.name] for verdict in verdicts], combine) for criterion in requested
    }
    is_bool = len(verdicts) == 1 or combine == "majority"
    if len(requested) == 1:
        return [_score(by_name[requested[0].name], verdicts, None, is_bool)]
    overall = _score(_overall(requested, verdicts, by_name, combine), verdicts, None, is_bool)
    return [overall, *(_score(answer, verdicts, name, is_bool) for name, answer in by_name.items())]


def _score(answer: Combined, verdicts: Sequence[Verdict], key: str | None, is_bool: bool) -> Score:
    score = answer.score(verdicts, key)
    return replace(score, value=bool(score.value)) if is_bool else score


def _overall(
    requested: Sequence[Criterion], verdicts: Sequence[Verdict], by_name: Mapping[str, Combined], combine: Combine
) -> Combined:
    """Return whether all criteria are met: for median and majority the lowest score, consistent with the others."""
    all_met = [all(verdict[criterion.name] == criterion.yes_is_good for criterion in requested) for verdict in verdicts]
    if combine == "mean":
        return combined(all_met, combine)
    number = min(_goodness(by_name[criterion.name].number or 0.0, criterion) for criterion in requested)
    return Combined(number=number, spread=spread_of(all_met), nearest=nearest_to(number, all_met))


def _goodness(number: float, criterion: Criterion) -> float:
    return number if criterion.yes_is_good else 1 - number


FAITHFULNESS_PROMPT = shipped("faithfulness")

_CLAIMS = Listing(title="faithfulness", entries="claims", text="claim", verdict="supported")


@declares(share)
async def faithfulness(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    metadata: dict[str, Any] | None,
    complete: Complete,
    *,
    context: str = "inputs.context",
    key: str | None = None,
    prompt: str = FAITHFULNESS_PROMPT,
    reasoning: bool = True,
    temperature: Temperature = 0.0,
) -> Score | None:
    """The share of the answer's claims that the context supports: supported / all, 0 to 1.

    The model lists each claim with its verdict; the comment names the unsupported claims, the metadata has all.
    `context` is a dotted path into inputs, outputs, reference_outputs or metadata, to a text or a list of texts (for a
    list of mappings, `outputs.documents.text` takes the field of each, and the whole list is context); it is left out
    of the question and the answer. `key` names the answer's field if several are left.

    None if the example has no context, and if the answer makes no claim ("I do not know"). With an empty list of
    contexts no claim is supported; the model only lists the claims. Raise ValueError for outputs without the field that
    `context` names. A connection with `answer_form: text` cannot give a list: each judgement fails (bad_request). It
    cannot see whether the context is right, nor what the answer leaves out, and is only as good as its model.
    """
    material = retrieved(context, path_roots(inputs, outputs, reference_outputs, metadata))
    if material.contexts is None or not material.outputs or not answer_text(material.outputs, key).strip():
        return None
    texts = {
        "inputs": question(material.inputs),
        "outputs": answer(material.outputs, key),
        "context": numbered("Context", material.contexts),
    }
    reply = await ask(
        complete,
        prompt,
        texts,
        _CLAIMS.schema(reasoning),
        needed=("outputs", "context"),
        temperature=temperature,
    )
    return _CLAIMS.score(reply if material.contexts else _unsupported(reply))


def _unsupported(reply: JudgeReply) -> JudgeReply:
    """Return the claims that the model lists, all marked as unsupported, since there is no context."""
    claims = [{**claim, _CLAIMS.verdict: False} for claim in reply.verdict[_CLAIMS.entries]]
    return replace(reply, verdict={**reply.verdict, _CLAIMS.entries: claims})


INSTRUCTION_FOLLOWING_PROMPT = shipped("instruction_following")

_INSTRUCTIONS = Listing(title="instruction_following", entries="instructions", text="instruction", verdict="followed")
_GIVEN = Numbered(
    title="instruction_following", noun="instructions", entries="instructions", verdict=_INSTRUCTIONS.verdict
)


@declares(share)
async def instruction_following(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    complete: Complete,
    *,
    instructions: str | Sequence[str] | None = None,
    key: str | None = None,
    prompt: str = INSTRUCTION_FOLLOWING_PROMPT,
    reasoning: bool = True,
    temperature: Temperature = 0.0,
) -> Score | None:
    """The share of the instructions that the answer follows completely, 0 to 1; the comment names the others.

    The model lists the instructions of the input, each with its verdict; the metadata has all. With `instructions` (a
    text, or a list of texts) only these are judged, by number, instead of those in the input. `key` names the answer's
    field. None if the input gives no instruction. If the number of verdicts is not that of `instructions`, the model is
    asked again. Raise ValueError for two verdicts on one instruction.

    A connection with `answer_form: text` cannot give a list: each judgement fails (bad_request). It cannot count words
    or lines reliably (a rule such as `length_between` or `regex` can), cannot see whether the answer is right, and is
    only as good as its model.
    """
    given = _given(instructions)
    listed = "\n".join(f"{number}. {text}" for number, text in enumerate(given, start=1))
    of_the_input = "Those that the input gives: find and list them all. If it gives none, the list is empty."
    reply = await ask(
        complete,
        prompt,
        {"inputs": question(inputs), "outputs": answer(outputs, key)},
        _GIVEN.schema(reasoning, len(given)) if given else _INSTRUCTIONS.schema(reasoning),
        needed=("outputs", "instructions"),
        temperature=temperature,
        spec_texts={"instructions": listed or of_the_input},
    )
    if not given:
        return _INSTRUCTIONS.score(reply)
    entries = [_named(*pair) for pair in zip(given, _GIVEN.in_order(reply, len(given)), strict=True)]
    return _INSTRUCTIONS.score_of(entries, _GIVEN.hash_of(prompt, reasoning, listed))


def _named(instruction: str, verdict: Item) -> Item:
    """Add the text of the instruction to a verdict."""
    return {"number": verdict["number"], _INSTRUCTIONS.text: instruction, **verdict}


def _given(instructions: Any) -> list[str]:
    if instructions is None:
        return []
    listed = instructions if isinstance(instructions, list | tuple) else [instructions]
    if not listed:
        raise ValueError(f"instructions: got {short(instructions)}, wanted a text, or a list of at least one")
    return [checked_text("instructions", instruction) for instruction in listed]


REFUSAL_PROMPT = shipped("refusal")


@declares(fault)
async def refusal(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    complete: Complete,
    *,
    key: str | None = None,
    prompt: str = REFUSAL_PROMPT,
    reasoning: bool = True,
    temperature: Temperature = 0.0,
) -> Score:
    """Whether the answer declines to do what was asked: 1 is a refusal, and lower is better.

    An answer that does part of it, with caveats or an apology, is not a refusal, and neither is an empty answer. The
    comment is the model's reasoning. `key` names the answer's field. Always applies. If a refusal is right (for
    questions that should not be answered), declare `higher_is_better: true` under `metrics`. It cannot see whether a
    refusal was justified, nor that a question was answered badly on purpose, and is only as good as its model.
    """
    schema = verdict_schema("refusal", {"refuses": {"type": "boolean"}}, "before" if reasoning else "none")
    texts = {"inputs": question(inputs), "outputs": answer(outputs, key)}
    reply = await ask(complete, prompt, texts, schema, needed=["inputs", "outputs"], temperature=temperature)
    return Score(value=reply.verdict["refuses"], comment=reply.verdict.get("reasoning"), prompt_hash=reply.prompt_hash)


TOXICITY_PROMPT = shipped("toxicity")

_HARMLESS = "none"
KINDS = ("insult", "threat", "hate", "harassment", "sexual", "other")
"""The kinds of toxicity that the judge distinguishes."""


@declares(fault)
async def toxicity(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    complete: Complete,
    *,
    key: str | None = None,
    prompt: str = TOXICITY_PROMPT,
    reasoning: bool = True,
    temperature: Temperature = 0.0,
) -> Score:
    """Whether the answer is toxic: 1 is toxic, and lower is better. The comment is the model's reasoning.

    The model names the gravest kind (insult, threat, hate, harassment, sexual, other, or none), stored in the
    metadata as `kind`. The verdict follows from the kind, so the two cannot contradict each other. Quoting or reporting
    toxic words is not toxic. `key` names the answer's field. Always applies. It cannot see what hurts only those who
    know the background (dog whistles, in-jokes), nor harm in polite words, such as dangerous advice, and is only as
    good as its model.
    """
    schema = verdict_schema(
        "toxicity", {"kind": {"type": "string", "enum": [*KINDS, _HARMLESS]}}, "before" if reasoning else "none"
    )
    texts = {"inputs": question(inputs), "outputs": answer(outputs, key)}
    reply = await ask(complete, prompt, texts, schema, needed=["outputs"], temperature=temperature)
    kind = reply.verdict["kind"]
    return Score(
        value=kind != _HARMLESS,
        comment=reply.verdict.get("reasoning"),
        metadata={"kind": kind},
        prompt_hash=reply.prompt_hash,
    )
