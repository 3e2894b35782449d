from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from evaluators.answer import reference_value
from evaluators.asking import Temperature, repeated, sampling, shipped, shown_in_both_spellings
from evaluators.direction import Direction, declares, zero_to_one
from evaluators.judges.criterion import CRITERIA, Criterion, criteria_of
from evaluators.prompt import check_prompt, prompt_hash
from evaluators.score import Score
from evaluators.settings import a_count, one_of
from evaluators.sheet import Combine, Combined, Reasoning, Verdict, combined, nearest_to, spread_of, verdict_schema
from specs.errors import short
from specs.protocols import Complete
from specs.template import fill

PROMPT = shipped("criteria")

_DEFAULT = "helpfulness"
_REFERENCE = ("reference_outputs", "expected_output")


def _metrics(name: str, settings: Mapping[str, Any]) -> dict[str, Direction]:
    """A score says what its name says: of a harm, 1 is harmful. That all are met is good."""
    asked = criteria_of(settings.get("criteria", _DEFAULT), settings.get("questions", CRITERIA))
    if len(asked) == 1:
        return {name: zero_to_one(higher_is_better=asked[0].yes_is_good)}
    if name in {one.name for one in asked}:
        raise ValueError(f"criteria: got the name {name!r}, which is the evaluator's own, wanted another")
    return {name: zero_to_one()} | {one.name: zero_to_one(higher_is_better=one.yes_is_good) for one in asked}


@declares(_metrics)
async def criteria(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    metadata: dict[str, Any] | None,
    complete: Complete,
    *,
    criteria: Any = _DEFAULT,
    questions: Mapping[str, str] = CRITERIA,  # here, so that another wording is another version of the judge
    labelled: bool | Literal["auto"] = "auto",
    prompt: str = PROMPT,
    reasoning: Reasoning = "before",
    temperature: Temperature = "auto",
    repeats: int = 1,
    combine: Combine = "mean",
) -> Score | list[Score] | None:
    """Yes or no to each of some criteria, all in one call; the comment is the model's reasoning.

    `criteria` is a name of `questions` (those of `evaluators.judges.CRITERIA`, or others in their place), or a mapping
    from names to questions or statements of your own (text, or {"description", "higher_is_better"}), or a
    constitutional principle (`name` and `critique_request`, as keys or attributes), or a list of these. One criterion
    is one score, under the evaluator's own name. Of several, the first score, the evaluator's own, says whether all are
    met well, and each is a score under its own name.

    A score says what its name says: 1 is yes. By harmfulness, maliciousness, controversiality, insensitivity, misogyny
    and criminality, and where `higher_is_better` is false, yes is bad, and the metric declares so; such a criterion is
    met well by no. A principle is met, 1, where a critic who follows it finds nothing to object to.

    `labelled`: whether the judge is shown the reference; then None without one. "auto" is yes where `correctness` is
    called by name, and else shows it where a `prompt` of your own asks for it. Such a prompt asks for {criteria} and
    {outputs}, and may ask for {inputs}, {reference_outputs}, {metadata}, or {input}, {output}, {expected_output}; what
    is not shown, or not there, reads (none).

    `repeats`, `combine` and `temperature` are those of `rubric`: by the mean, a score is the share of yes, from 0 to 1,
    and the own one the share of repeats in which all were met well; by median and majority each criterion is combined
    by itself, and the own score is that of the least well met. `spread` is the sample's standard deviation.

    Raises ValueError for a setting that cannot be used. It cannot see how much an answer meets a criterion, nor whether
    the reference is right; one criterion may colour the others of the same call; and it is as good as its model.
    """
    asked, how = criteria_of(criteria, questions), one_of("combine", combine, Combine)
    needs = _needs_reference(labelled, asked)
    shows = needs or (labelled == "auto" and prompt != PROMPT)
    parameters = sampling(temperature, a_count("repeats", repeats))
    answers = {one.name: {"type": "boolean"} for one in asked}
    schema = verdict_schema("criteria", answers, one_of("reasoning", reasoning, Reasoning))
    reference = reference_outputs if shows else None
    lines = "\n".join(f"- {one.name}: {one.says}" for one in asked)
    texts = shown_in_both_spellings(inputs, outputs, reference, metadata) | {"criteria": lines}
    check_prompt(prompt, texts, needed=[["outputs", "output"], ["criteria"], *([_REFERENCE] if needs else [])])
    if needs and reference_value(reference, None) is None:
        return None
    verdicts = await repeated(complete, fill(prompt, texts), schema, repeats, parameters)
    hashed = prompt_hash(prompt, lines, schema)
    scores = [replace(score, prompt_hash=hashed, repeats=repeats) for score in _scores(asked, verdicts, how)]
    return scores[0] if len(asked) == 1 else scores


def _needs_reference(labelled: Any, asked: Sequence[Criterion]) -> bool:
    if labelled == "auto":
        return any(criterion.needs_reference for criterion in asked)
    if not isinstance(labelled, bool):
        raise ValueError(f"labelled: got {short(labelled)}, wanted true, false or auto")
    return labelled


def _scores(asked: Sequence[Criterion], verdicts: Sequence[Verdict], how: Combine) -> list[Score]:
    each = {one.name: combined([verdict[one.name] for verdict in verdicts], how) for one in asked}
    is_whole = len(verdicts) == 1 or how == "majority"
    if len(asked) == 1:
        return [_score(each[asked[0].name], verdicts, None, is_whole)]
    overall = _score(_overall(asked, verdicts, each, how), verdicts, None, is_whole)
    return [overall, *(_score(one, verdicts, name, is_whole) for name, one in each.items())]


def _score(one: Combined, verdicts: Sequence[Verdict], key: str | None, is_whole: bool) -> Score:
    score = one.score(verdicts, key)
    return replace(score, value=bool(score.value)) if is_whole else score


def _overall(
    asked: Sequence[Criterion], verdicts: Sequence[Verdict], each: Mapping[str, Combined], how: Combine
) -> Combined:
    """Whether all are met well. The least of medians and majorities, so that it agrees with what stands beside it."""
    met = [all(verdict[one.name] == one.yes_is_good for one in asked) for verdict in verdicts]
    if how == "mean":
        return combined(met, how)
    number = min(_well(each[one.name].number or 0.0, one) for one in asked)
    return Combined(number=number, spread=spread_of(met), nearest=nearest_to(number, met))


def _well(number: float, criterion: Criterion) -> float:
    return number if criterion.yes_is_good else 1 - number
