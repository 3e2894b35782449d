"""Failure modes: yes or no for each mode of a taxonomy, or the one topic of a file of topics."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

from evalflows.evaluators.agents.trajectory import read_trajectory
from evalflows.evaluators.agents.transcript import lines, transcript
from evalflows.evaluators.declarations import Direction, declares, unused_with, zero_to_one
from evalflows.evaluators.fence import fenced
from evalflows.evaluators.judging import JudgeReply, Temperature, ask
from evalflows.evaluators.paths import answer_text
from evalflows.evaluators.prompt_texts import NONE, answer, question, reference, shipped
from evalflows.evaluators.scales import verdict_schema
from evalflows.evaluators.score import Score
from evalflows.evaluators.semantic import cosine, units
from evalflows.evaluators.settings import checked_choice, is_number
from evalflows.evaluators.views import Evaluation, Evaluations, RunView
from evalflows.specs.errors import short
from evalflows.specs.escaping import one_line
from evalflows.specs.failure_modes import OTHER, PREFIX, ModeSpec, TaxonomySpec
from evalflows.specs.protocols import Complete, Embed

FAILURE_MODES_PROMPT, TOPICS_PROMPT = shipped("failure_modes"), shipped("topics")

By = Literal["model", "embedding"]

MAX_SENTENCE = 600
"""Characters of what is said about a failure that are compared by meaning: about as many as the local model reads."""

_KEPT_TAXONOMIES = 8


def _metrics(name: str, settings: Mapping[str, Any]) -> dict[str, Direction]:
    """Declare a metric for each mode and one for the rest: lower is better. Topics are labels."""
    if not isinstance(settings.get("taxonomy"), Mapping):  # to be described, or rejected
        return {f"{PREFIX}NAME": zero_to_one(higher_is_better=False)}
    taxonomy = _taxonomy(settings.get("taxonomy"))
    if taxonomy.kind == "topic":
        return {name: {"higher_is_better": True}}
    return {metric: zero_to_one(higher_is_better=False) for metric in taxonomy.metrics}


def _unused(settings: Mapping[str, Any]) -> set[str]:
    return {"complete"} if settings.get("by") == "embedding" else {"embed"}


@declares(_metrics)
@unused_with(_unused)
async def failure_modes(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    scores: Evaluations,
    run: RunView | None = None,
    complete: Complete | None = None,
    embed: Embed | None = None,
    *,
    taxonomy: Mapping[str, Any] | None = None,
    by: By = "model",
    needs: Mapping[str, Any] | None = None,
    key: str | None = None,
    prompt: str = FAILURE_MODES_PROMPT,
    topic_prompt: str = TOPICS_PROMPT,
    reasoning: bool = True,
    temperature: Temperature = 0.0,
    min_similarity: float = 0.4,
) -> list[Score] | Score | None:
    """Yes or no for each failure mode of a taxonomy, all in one call, as `mode.NAME`; lower is better.

    `taxonomy` is the path of a file: see docs/guides/failure_modes.md. `mode.other` says whether the answer failed in a
    way that no mode covers. A taxonomy of `kind: topic` gives one label instead, the topic or `other`, under the
    evaluator's name.

    `needs` (metric: value, or {below: …}, or {at_least: …}) are scores that must hold, such as {correct: false}:
    elsewhere every mode is a no, without a call. None if such a score does not apply or was not sampled; the judgement
    fails if the score is missing. `by` is `model`, which sees the task, the reference, the answer or an agent's steps,
    and what other evaluators noted; or `embedding`: the mode whose definition and examples are nearest in meaning to
    what was noted about the answer, else to the answer (of topics: to the task), if their cosine is at least
    `min_similarity`. `key` names the answer's field; a custom `prompt` uses {inputs}, {reference_outputs}, {outputs},
    {notes} and {modes}, and a `topic_prompt` {inputs}, {outputs} and {modes}.

    It cannot see failures that neither the answer nor a note shows, and is only as good as its model: validate each
    mode against people before you rely on it.
    """
    chosen = _taxonomy(taxonomy)
    checked_choice("by", by, By)
    wanted = _checked(needs or {})
    if scores:  # none are known in a plan, which then counts a call
        reached = [_reached(scores, metric, value) for metric, value in wanted.items()]
        if None in reached:
            return None
        if not all(reached):
            return None if chosen.kind == "topic" else _scores(chosen, ())
    if by == "embedding":
        text = _noted(scores, wanted) or answer_text(outputs, key)
        text = task_text(inputs) if chosen.kind == "topic" else text
        return await _nearest(chosen, text, embed, min_similarity)
    assert complete is not None
    fields: dict[str, Any] = {mode.name: {"type": "boolean"} for mode in chosen.modes} | {OTHER: {"type": "boolean"}}
    if chosen.kind == "topic":
        fields = {"topic": {"type": "string", "enum": [*chosen.names, OTHER]}}
    reply = await ask(
        complete,
        topic_prompt if chosen.kind == "topic" else prompt,
        {
            "inputs": question(inputs),
            "outputs": _shown(inputs, outputs, run, key),
            "reference_outputs": reference(reference_outputs, key),
            "notes": _notes(scores),
        },
        verdict_schema(chosen.kind, fields, "before" if reasoning else "none"),
        needed=("outputs", "modes"),
        temperature=temperature,
        spec_texts={"modes": "\n".join(map(_line, chosen.modes))},
    )
    return _judged(chosen, reply)


def task_text(inputs: dict[str, Any]) -> str:
    """Return a task as what topics are compared with, on one line."""
    return one_line(answer_text(inputs, None)).strip()[:MAX_SENTENCE]


def _taxonomy(setting: Any) -> TaxonomySpec:
    if not isinstance(setting, Mapping):
        raise ValueError(f"taxonomy: got {short(setting)}, wanted the path of a file of failure modes")
    return TaxonomySpec.model_validate(setting)


def _judged(taxonomy: TaxonomySpec, reply: JudgeReply) -> list[Score] | Score:
    verdict, comment = reply.verdict, reply.verdict.get("reasoning")
    if taxonomy.kind == "topic":
        return Score(label=verdict["topic"], comment=comment, prompt_hash=reply.prompt_hash)
    holding = [name for name in [*taxonomy.names, OTHER] if verdict[name]]
    return _scores(taxonomy, holding, comment, reply.prompt_hash)


def _scores(
    taxonomy: TaxonomySpec, holding: Iterable[str], comment: str | None = None, prompt_hash: str | None = None
) -> list[Score]:
    """Return a yes or no for each mode; the comment goes with each yes."""
    found = {f"{PREFIX}{name}" for name in holding}
    return [
        Score(
            key=metric,
            value=metric in found,
            comment=comment if metric in found else None,
            prompt_hash=prompt_hash,
        )
        for metric in taxonomy.metrics
    ]


def _line(mode: ModeSpec) -> str:
    """Return a mode as a judge reads it, with examples that are texts."""
    texts = [f"\n  such as: {one_line(text)}" for text in mode.examples if _is_text(text)]
    return f"- {mode.name}: {one_line(mode.definition)}{''.join(texts)}"


def _is_text(example: str) -> bool:
    """Return whether an example is a text: ids of runs and traces have no spaces."""
    return " " in example


def _shown(inputs: dict[str, Any], outputs: dict[str, Any], run: RunView | None, key: str | None) -> str:
    """Return the answer, or an agent's steps if it called tools, fenced. Steps say so outside of the fence."""
    if key is None and read_trajectory(outputs, inputs, run).tool_calls:
        return f"(steps)\n{fenced(transcript(outputs, inputs, run))}"
    return answer(outputs, key)


def _notes(scores: Sequence[Evaluation]) -> str:
    """Return what other evaluators said, one JSON object on each line, fenced."""
    noted = [score for score in scores if score.comment and score.status == "scored"]
    return fenced(lines(_note(score) for score in noted)) if noted else NONE


def _note(score: Evaluation) -> dict[str, Any]:
    return {"metric": score.name, "value": score.value, "comment": score.comment}


def _noted(scores: Sequence[Evaluation], wanted: Iterable[str]) -> str:
    """Return what the evaluators that `needs` names said, or else all evaluators, on one line."""
    comments = {score.name: score.comment for score in scores if score.comment and score.status == "scored"}
    of_needed = [comments[metric] for metric in wanted if metric in comments]
    return one_line(" ".join(of_needed or comments.values()))[:MAX_SENTENCE]


def _checked(needs: Any) -> Mapping[str, Any]:
    """Return the conditions. Raise ValueError for one of another form."""
    bounds = ("below", "at_least")
    if not isinstance(needs, Mapping):
        raise ValueError(f"needs: got {short(needs)}, wanted a mapping from metrics to values")
    for metric, value in needs.items():
        is_bound = isinstance(value, Mapping) and len(value) == 1 and {*value} <= {*bounds}
        bound = next(iter(value.values())) if is_bound else value
        if isinstance(value, Mapping) and not (is_bound and is_number(bound)):
            raise ValueError(f"needs: {metric}: got {short(value)}, wanted {{below: …}} or {{at_least: …}}")
        if not isinstance(bound, bool | int | float | str):
            raise ValueError(f"needs: {metric}: got {short(value)}, wanted true, false, a number or a label")
    return needs


def _reached(scores: Evaluations, metric: str, wanted: Any) -> bool | None:
    """Return whether a score is as wanted; None if it does not apply. Raise LookupError if it is missing."""
    score = scores.get(metric)
    if score is not None and score.status in ("not_applicable", "sampled_out"):
        return None
    if score is None or score.value is None:
        raise LookupError(f"no score of {metric}, which it needs: {score.status if score else 'not given'}")
    if not isinstance(wanted, Mapping):
        return bool(score.value == wanted)
    if not isinstance(score.value, int | float):
        raise ValueError(f"{metric}: got the label {short(score.value)}, wanted a number")
    return bool(score.value < wanted["below"]) if "below" in wanted else bool(score.value >= wanted["at_least"])


async def _nearest(
    taxonomy: TaxonomySpec, text: str, embed: Embed | None, min_similarity: float
) -> list[Score] | Score:
    """Return the mode or topic nearest in meaning to a text, if any is near."""
    assert embed is not None
    if not is_number(min_similarity) or not -1 <= min_similarity <= 1:
        raise ValueError(f"min_similarity: got {short(min_similarity)}, wanted a number from -1 to 1")
    centres = await _centres(taxonomy, embed)
    (vector,) = units(await embed([text or OTHER]), 1)
    near = max((cosine(vector, centre), name) for name, centre in centres.items())
    name = near[1] if text and near[0] >= min_similarity else OTHER
    comment = f"nearest is {near[1]}: {near[0]:.2f}"
    return Score(label=name, comment=comment) if taxonomy.kind == "topic" else _scores(taxonomy, [name], comment)


@lru_cache(_KEPT_TAXONOMIES)
def _kept(embed: Embed, taxonomy: str) -> dict[str, list[float]]:
    """Return where the middles of a taxonomy's modes are kept: all answers are compared with the same."""
    return {}


async def _centres(taxonomy: TaxonomySpec, embed: Any) -> dict[str, list[float]]:
    """Return the middle of each mode's definition and examples."""
    kept = _kept(embed, taxonomy.model_dump_json())
    if not kept:
        texts = {mode.name: [mode.definition, *filter(_is_text, mode.examples)] for mode in taxonomy.modes}
        flat = [text for of_mode in texts.values() for text in of_mode]
        vectors = iter(units(await embed(flat), len(flat)))
        kept |= {name: _middle([next(vectors) for _ in of_mode]) for name, of_mode in texts.items()}
    return kept


def _middle(vectors: Sequence[Sequence[float]]) -> list[float]:
    total = [math.fsum(numbers) for numbers in zip(*vectors, strict=True)]
    length = math.hypot(*total) or 1.0
    return [number / length for number in total]
