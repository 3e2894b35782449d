from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from evaluators.asking import NONE, Temperature, answer, question, repeated, sampling, shipped
from evaluators.asking import reference as reference_text
from evaluators.fence import fenced
from evaluators.judges.criterion import CRITERIA, Criterion, criteria_of
from evaluators.preference import Preference
from evaluators.prompt import check_prompt, prompt_hash
from evaluators.settings import a_count, one_of
from evaluators.sheet import Reasoning, Verdict, verdict_schema
from evaluators.text import as_text
from specs.errors import short
from specs.protocols import Complete
from specs.reference import version_of
from specs.template import fill

PLAIN, LABELLED = shipped("pairwise"), shipped("pairwise_labelled")
"""The prompts: without a reference, and with one."""

DEFAULT = ("helpfulness", "relevance", "correctness", "depth")

Winner = Literal["first", "second", "tie"]

_SAID: Mapping[int, Winner] = {1: "first", 2: "second", 0: "tie"}
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
    """Which of two answers a model finds better by some criteria, or neither; the comment is its reasoning.

    `criteria` are names (those of `evaluators.judges.CRITERIA`), a mapping from names to what they mean, a principle,
    or a list of these, as for the evaluator `criteria`; all weigh alike. `key` names the field of both answers, and of
    a reference, where they have several.

    `reference`: whether the model is shown the example's reference. None: where there is one. True: always, and None is
    returned for an example that has none. False: never.

    A `prompt` of your own asks for {first} and {second}, and may ask for {criteria}, {inputs}, {reference_outputs},
    {metadata} and {verdict} (how to give it). What is not shown, or not there, reads (none). It must ask for {criteria}
    where others are given than the default ones, and for {reference_outputs} where `reference` is true.

    The `reasoning` is asked for before the verdict, which then follows from it, or after, or not at all: that is
    quicker, and often worse.

    It is asked `repeats` times. What is said most often is the preference; where nothing is, because as many repeats
    are for one answer as for the other, it is a tie. If one repeat fails, so does the judgement. `agreement` is the
    share of all two repeats that say the same, the comment that of the first repeat that says what was decided.
    `temperature` is that of `rubric`.

    Raises ValueError for a setting that cannot be used, before anything is asked. It cannot see what is true where no
    reference says so, nor that its model prefers a place or a length: ask in both orders, and compare it with people
    before you rely on it.
    """
    verdict = _VERDICTS[one_of("reasoning", reasoning, Reasoning)]
    schema = verdict_schema("pairwise", {"preference": {"type": "integer", "enum": [*_SAID]}}, reasoning)
    by = "\n".join(_line(criterion) for criterion in criteria_of(criteria))
    parameters = sampling(temperature, a_count("repeats", repeats))
    known = reference_text(reference_outputs, key) if _may_show(reference) else NONE
    asked_with = _prompt(prompt, labelled=bool(reference) or known != NONE)
    first, second = (answer(one, key) for one in outputs)
    texts = {
        "inputs": question(inputs),
        "first": first,
        "second": second,
        "reference_outputs": known,
        "metadata": fenced(as_text(metadata)) if metadata else NONE,
        "criteria": by,
        "verdict": verdict,
    }
    needed = {"first": True, "second": True, "criteria": criteria != DEFAULT, "reference_outputs": bool(reference)}
    check_prompt(asked_with, texts, needed=[[name] for name, is_needed in needed.items() if is_needed])
    if reference and known == NONE:
        return None
    verdicts = await repeated(complete, fill(asked_with, texts), schema, repeats, parameters)
    return _decided(verdicts, prompt_hash(asked_with, by, verdict, schema))


# What is asked with where a spec names no prompt is no default, so it is named here: another wording, another version.
vars(pairwise_preference)["version_parts"] = [version_of(pairwise_preference), PLAIN, LABELLED, _VERDICTS, CRITERIA]


def _line(criterion: Criterion) -> str:
    less = "" if criterion.yes_is_good else " Less of it is better."
    return f"- {criterion.name}: {criterion.says}{less}"


def _may_show(reference: Any) -> bool:
    if reference is not None and not isinstance(reference, bool):
        raise ValueError(f"reference: got {short(reference)}, wanted true, false or null")
    return reference is not False


def _prompt(own: str | None, labelled: bool) -> str:
    if own is not None:
        return own
    return LABELLED if labelled else PLAIN


def _decided(verdicts: Sequence[Verdict], hashed: str) -> Preference:
    said = [_SAID[verdict["preference"]] for verdict in verdicts]
    winner = _most(said)
    comments = [verdict.get("reasoning") for verdict, one in zip(verdicts, said, strict=True) if one == winner]
    return Preference(
        winner=winner,
        comment=comments[0] if comments else f"said by the repeats: {', '.join(said)}",
        prompt_hash=hashed,
        repeats=len(said),
        agreement=_agreement(said),
    )


def _most(said: Sequence[Winner]) -> Winner:
    """What is said most often; a tie where that is several, so that no place is preferred."""
    counted = Counter(said).most_common()
    is_even = len(counted) > 1 and counted[0][1] == counted[1][1]
    return "tie" if is_even else counted[0][0]


def _agreement(said: Sequence[Winner]) -> float | None:
    """The share of all two repeats that say the same; None for one repeat."""
    if len(said) < 2:
        return None
    alike = sum(count * (count - 1) for count in Counter(said).values())
    return alike / (len(said) * (len(said) - 1))
