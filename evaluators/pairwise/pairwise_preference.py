"""A judge that chooses the better of two answers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from evalflows.evaluators.fence import fenced
from evalflows.evaluators.judging import Temperature, check_prompt, prompt_hash, repeated, sampling
from evalflows.evaluators.principles import CRITERIA, Criterion, criteria_of
from evalflows.evaluators.prompt_texts import NONE, answer, question, shipped
from evalflows.evaluators.prompt_texts import reference as reference_text
from evalflows.evaluators.scales import Reasoning, Verdict, verdict_schema
from evalflows.evaluators.score import Preference
from evalflows.evaluators.settings import checked_choice, checked_count
from evalflows.specs.errors import short
from evalflows.specs.placeholders import fill
from evalflows.specs.protocols import Complete
from evalflows.specs.reference import version_of

PLAIN, LABELLED = shipped("pairwise"), shipped("pairwise_labelled")
"""The default prompts, without and with a reference."""

DEFAULT = ("helpfulness", "relevance", "correctness", "depth")

Winner = Literal["first", "second", "tie"]

_WINNERS: Mapping[int, Winner] = {1: "first", 2: "second", 0: "tie"}
_PREFERENCE = 'give "preference": 1 if answer A is better, 2 if answer B is better, 0 if neither is.'
_REASONING = "in two or three sentences, how each answer meets the criteria."
_VERDICTS: Mapping[Reasoning, str] = {
    "before": f'Give "reasoning" first: {_REASONING} Then {_PREFERENCE}',
    "after": f'First {_PREFERENCE} Then give "reasoning": {_REASONING}',
    "none": f"G{_PREFERENCE[1:]}",
}


async def pairwise_preference(
    inputs: dict[str, Any],
    outputs: Sequence[dict[str, Any] | None],
    reference_outputs: dict[str, Any] | None,
    metadata: dict[str, Any] | None,
    complete: Complete,
    *,
    criteria: Any = DEFAULT,
    key: str | None = None,
    reference: bool | None = None,
    prompt: str | None = None,
    reasoning: Reasoning = "before",
    temperature: Temperature = "auto",
    repeats: int = 1,
) -> Preference | None:
    """Which of two answers is better by some criteria, or neither, as judged by a model; the comment is its reasoning.

    `criteria` are names in `evaluators.judges.CRITERIA`, a mapping from names to descriptions, a principle, or a list
    of these, as for the evaluator `criteria`; all have equal weight. `key` names the field of both answers, and of a
    reference, if they have several.

    `reference`: whether the model sees the example's reference. None: if there is one. True: always, and the evaluator
    returns None for an example without one. False: never.

    A custom `prompt` uses {first} and {second}, and optionally {criteria}, {inputs}, {reference_outputs}, {metadata}
    and {verdict} (the answer format). A text that is missing or not shown reads (none). The prompt must use {criteria}
    if they are not the default ones, and {reference_outputs} if `reference` is true.

    `reasoning` is before, after or none: reasoning before the verdict informs it, and none is faster but often worse.

    The model is called `repeats` times. The most frequent verdict is the preference; if two are equally frequent, it is
    a tie. If one repeat fails, the judgement fails. `agreement` is the share of pairs of repeats that agree; the
    comment is that of the first repeat with the final verdict. `temperature` is that of `rubric`.

    Raise ValueError before any call for an invalid setting. It cannot see what is true without a reference that says
    so, nor that its model has a position or length bias: judge in both orders, and validate it against people before
    you rely on it.
    """
    verdict = _VERDICTS[checked_choice("reasoning", reasoning, Reasoning)]
    schema = verdict_schema("pairwise", {"preference": {"type": "integer", "enum": [*_WINNERS]}}, reasoning)
    criteria_text = "\n".join(_line(criterion) for criterion in criteria_of(criteria))
    parameters = sampling(temperature, checked_count("repeats", repeats))
    reference_shown = reference_text(reference_outputs, key) if _may_show(reference) else NONE
    chosen_prompt = _prompt(prompt, labelled=bool(reference) or reference_shown != NONE)
    first, second = (answer(output, key) for output in outputs)
    texts = {
        "inputs": question(inputs),
        "first": first,
        "second": second,
        "reference_outputs": reference_shown,
        "metadata": fenced(metadata) if metadata else NONE,
        "criteria": criteria_text,
        "verdict": verdict,
    }
    needed = {"first": True, "second": True, "criteria": criteria != DEFAULT, "reference_outputs": bool(reference)}
    check_prompt(chosen_prompt, texts, needed=[[name] for name, is_needed in needed.items() if is_needed])
    if reference and reference_shown == NONE:
        return None
    verdicts = await repeated(complete, fill(chosen_prompt, texts), schema, repeats, parameters)
    return _decided(verdicts, prompt_hash(chosen_prompt, criteria_text, verdict, schema))


# The default prompts are not parameter defaults, so they are listed here to make a new wording a new version.
vars(pairwise_preference)["version_parts"] = [version_of(pairwise_preference), PLAIN, LABELLED, _VERDICTS, CRITERIA]


def _line(criterion: Criterion) -> str:
    less = "" if criterion.yes_is_good else " Less of it is better."
    return f"- {criterion.name}: {criterion.question}{less}"


def _may_show(reference: Any) -> bool:
    if reference is not None and not isinstance(reference, bool):
        raise ValueError(f"reference: got {short(reference)}, wanted true, false or null")
    return reference is not False


def _prompt(custom: str | None, labelled: bool) -> str:
    if custom is not None:
        return custom
    return LABELLED if labelled else PLAIN


def _decided(verdicts: Sequence[Verdict], hash_of_prompt: str) -> Preference:
    winners = [_WINNERS[verdict["preference"]] for verdict in verdicts]
    winner = _majority(winners)
    comments = [verdict.get("reasoning") for verdict, vote in zip(verdicts, winners, strict=True) if vote == winner]
    return Preference(
        winner=winner,
        comment=comments[0] if comments else f"verdicts of the repeats: {', '.join(winners)}",
        prompt_hash=hash_of_prompt,
        repeats=len(winners),
        agreement=_agreement(winners),
    )


def _majority(winners: Sequence[Winner]) -> Winner:
    """Return the most frequent winner; a tie if two are equally frequent, so that no position is preferred."""
    counts = Counter(winners).most_common()
    is_even = len(counts) > 1 and counts[0][1] == counts[1][1]
    return "tie" if is_even else counts[0][0]


def _agreement(winners: Sequence[Winner]) -> float | None:
    """Return the share of pairs of repeats that agree; None for one repeat."""
    if len(winners) < 2:
        return None
    agreeing = sum(count * (count - 1) for count in Counter(winners).values())
    return agreeing / (len(winners) * (len(winners) - 1))
