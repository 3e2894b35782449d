"""Judge an answer by a rubric: one criterion, or several with weights, on a scale or by labels."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from evalflows.evaluators.declarations import declares, on_the_scale
from evalflows.evaluators.judging import Temperature, check_prompt, prompt_hash, repeated, sampling
from evalflows.evaluators.prompt_texts import prompt_texts_in_both_spellings, shipped
from evalflows.evaluators.scales import SCALE, Combine, Labels, Reasoning, Scale, Sheet
from evalflows.evaluators.score import Score
from evalflows.evaluators.settings import checked_choice, checked_count, checked_text, is_number
from evalflows.specs.errors import short
from evalflows.specs.metric_names import MEASURES
from evalflows.specs.placeholders import fill, placeholders
from evalflows.specs.protocols import Complete

PROMPT = shipped("rubric")

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
    prompt: str = PROMPT,
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
