"""Judge an answer by chosen criteria, each with a score of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from evalflows.evaluators.declarations import Direction, declares, zero_to_one
from evalflows.evaluators.judging import Temperature, check_prompt, prompt_hash, repeated, sampling
from evalflows.evaluators.paths import reference_value
from evalflows.evaluators.principles import CRITERIA, Criterion, criteria_of
from evalflows.evaluators.prompt_texts import prompt_texts_in_both_spellings, shipped
from evalflows.evaluators.scales import (
    Combine,
    Combined,
    Reasoning,
    Verdict,
    combined,
    nearest_to,
    spread_of,
    verdict_schema,
)
from evalflows.evaluators.score import Score
from evalflows.evaluators.settings import checked_choice, checked_count
from evalflows.specs.errors import short
from evalflows.specs.placeholders import fill
from evalflows.specs.protocols import Complete

PROMPT = shipped("criteria")

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
    prompt: str = PROMPT,
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
    reference_shown = reference_needed or (labelled == "auto" and prompt != PROMPT)
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
