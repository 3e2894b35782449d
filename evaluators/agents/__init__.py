"""Evaluators of agents: tools called, arguments, order and number of calls, and the final answer."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from evalflows.evaluators.agents.trajectory import (
    Call,
    CallScore,
    Numbers,
    Rule,
    answer_of,
    expected_calls,
    paired,
    read_trajectory,
    rule,
    tools_of,
)
from evalflows.evaluators.agents.transcript import transcript
from evalflows.evaluators.binding import (
    SCALE,
    Combine,
    Direction,
    Reasoning,
    declares,
    needs_reference,
    on_the_scale,
    share,
    zero_to_one,
)
from evalflows.evaluators.judges import rubric as judged
from evalflows.evaluators.numbers import numeric_closeness
from evalflows.evaluators.score import RunView, Score
from evalflows.evaluators.text import contains, exact_match, why_not_contained, why_not_equal
from evalflows.specs.errors import Complete, short

__all__ = ["agent", "final_answer", "step_efficiency", "tool_arguments", "tool_order", "tool_selection", "trajectory"]


How = Literal["exact", "contains", "number"]


@declares(share)
@needs_reference
def final_answer(
    inputs: dict[str, Any] | None,
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    *,
    how: How = "exact",
    ignore_case: bool = False,
    key: str | None = None,
) -> Score | None:
    """Whether the agent's final answer matches the reference's, whatever the agent did before.

    `how` is exact, as in `exact_match`; contains: the reference, or each element of a list, occurs in the answer, as in
    `contains`; number: the answer's last number is the reference's, as in `numeric_closeness`. On both sides the answer
    is `final_answer`, else the assistant's last text without a call in `messages`, else `output` or `answer`, else the
    only field; with `key`, the reference's answer is that field. None if the reference has no answer; a missing answer
    of the agent is wrong. It cannot see how the agent reached its answer, nor recognise a paraphrase.
    """
    if how not in ("exact", "contains", "number"):
        raise ValueError(f"how: got {short(how)}, wanted one of exact, contains, number")
    fields = reference_outputs or {}
    expected = answer_of(fields, inputs) if key is None else fields.get(key)
    if expected is None:
        return None
    answer = answer_of(outputs, inputs)
    if answer is None:
        return Score(value=False, comment="no final answer")
    output, reference = {"output": answer}, {"output": expected}
    if how == "number":
        return numeric_closeness(output, reference)
    if how == "contains":
        matches = contains(output, reference, ignore_case=ignore_case)
        comment = None if matches else why_not_contained(output, reference, ignore_case=ignore_case)
    else:
        matches = exact_match(output, reference, ignore_case=ignore_case)
        comment = None if matches else why_not_equal(output, reference)
    return None if matches is None else Score(value=matches, comment=comment)


@declares(share)
@needs_reference
def step_efficiency(
    inputs: dict[str, Any] | None,
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    run: RunView | None = None,
    *,
    key: str | None = None,
) -> Score | None:
    """The expected number of steps divided by the actual number, at most 1; a step is a tool call.

    The expected number is that of the reference's calls (`tool_calls`, `messages`, or the field `key`), or the field
    `key` itself if it is a whole number. None without it. The score is 0 if none of the expected tools was called,
    since doing nothing is not efficient, and if calls were made but none was expected. It is 1 if no call was expected
    and none was made. It cannot see whether the task was done: an agent that stops half way has taken few steps. Read
    it together with `tool_selection` and `final_answer`.
    """
    actual = Counter(call.name for call in read_trajectory(outputs, inputs, run).tool_calls)
    count = None if key is None else (reference_outputs or {}).get(key)
    if isinstance(count, int) and not isinstance(count, bool):
        n_expected, any_expected = _counted(key, count), actual.total() > 0
    else:
        calls = expected_calls(reference_outputs, key, inputs)
        if calls is None:
            return None
        expected = Counter(call.name for call in calls)
        n_expected, any_expected = expected.total(), (actual & expected).total() > 0
    comment = f"{actual.total()} steps, {n_expected} wanted"
    if n_expected == actual.total() == 0:
        return Score(value=1.0, comment=comment)
    return Score(value=min(1.0, n_expected / actual.total()) if any_expected else 0.0, comment=comment)


def _counted(key: str | None, count: int) -> int:
    if count < 0:
        raise ValueError(f"reference: {key}: got {count}, wanted at least 0 steps")
    return count


@declares(share)
@needs_reference
def tool_arguments(
    inputs: dict[str, Any] | None,
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    run: RunView | None = None,
    metadata: dict[str, Any] | None = None,
    *,
    arguments: Rule = "exact",
    tools: Sequence[Mapping[str, Any]] | str | None = None,
    numbers: Numbers = "equal",
    extra_calls: str = "wrong",
    key: str | None = None,
) -> Score | None:
    """How correct the calls are, names and arguments, 0 to 1; the comment lists what is wrong.

    Each expected call is paired with an actual call of the same tool so that the total score is largest, whatever the
    order. The total is divided by the number of expected or of actual calls, whichever is larger; with `extra_calls`
    "ignored" by the number of expected calls, if there are any. `arguments` says how a pair is scored:

    - exact: 1 if all arguments are equal, else 0. 1 equals 1.0, but not "1"; lists and mappings are compared deeply.
    - per_argument: the share of all arguments of either call that both have and that are equal.
    - types: the same share for arguments with equal JSON types. With `tools` (name and parameters, or OpenAI's format;
      or the path to the example's own, such as inputs.tools or metadata.tools) the types and the required arguments
      come from the schema, and if the reference has no calls, all actual calls are judged.
    - allowed: 1 or 0; the reference has a list of allowed values for each argument, as published by the Berkeley
      Function Calling Leaderboard (BFCL). "" or null in the list makes the argument optional. Nested mappings have
      lists of allowed values too. Texts are compared without case, kind of quotes, spaces and , . / - _ * ^

    `numbers` "strict" tells integers from floats inside arrays, as BFCL does: [1, 2] is then neither [1.0, 2.0] nor an
    array of floats in a tool's schema. An argument that is itself a number is compared by value.

    None without calls in the reference, and without the field that `tools` names. If no call is expected and none is
    made, the score is 1. Arguments that are not a JSON object match nothing. It cannot see the order, nor what a call
    returned, nor that another value is also right; `types` ignores the content of lists (unless strict) and mappings,
    and `allowed` treats the texts "-1.5" and "15" as equal.
    """
    given = tools_of(tools, inputs, metadata)
    if given is None and tools is not None:
        return None
    score_call = rule(arguments, given, numbers)
    if extra_calls not in ("wrong", "ignored"):
        raise ValueError(f"extra_calls: got {short(extra_calls)}, wanted wrong or ignored")
    actual = read_trajectory(outputs, inputs, run).tool_calls
    expected = expected_calls(reference_outputs, key, inputs)
    if expected is None:
        if given is None or not actual:
            return None
        expected = actual
    pairing = paired(expected, actual, score_call)
    extra = extra_calls == "wrong" or not expected
    most = max(len(expected), len(actual)) if extra else len(expected)
    comment = pairing.faults(None if given is not None else arguments, extra=extra)
    return Score(value=pairing.total / most if most else 1.0, comment=comment)


Mode = Literal["strict", "unordered", "subset", "superset"]


@declares(share)
@needs_reference
def tool_order(
    inputs: dict[str, Any] | None,
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    run: RunView | None = None,
    *,
    mode: Mode = "strict",
    arguments: Literal["ignored", "exact", "types", "allowed"] = "ignored",
    key: str | None = None,
) -> Score | None:
    """Whether the actual calls match the expected calls in the given mode; if not, the comment lists both.

    `mode` is strict: the same calls in the same order; unordered: the same calls, each as often; subset: no call that
    is not expected; superset: all expected calls, and possibly others. If calls are expected but none is made, the
    score is false, also for subset. Calls are compared by name and, with `arguments`, also by their arguments: exact,
    types or allowed, as in `tool_arguments`. None without calls in the reference. It cannot see how close a wrong order
    is (one extra call makes strict false), nor whether the order matters.
    """
    if mode not in get_args(Mode):
        raise ValueError(f"mode: got {short(mode)}, wanted one of {', '.join(get_args(Mode))}")
    same = _same(arguments)
    expected = expected_calls(reference_outputs, key, inputs)
    if expected is None:
        return None
    actual = read_trajectory(outputs, inputs, run).tool_calls
    holds = _holds(mode, expected, actual, same) and not (expected and not actual)
    return Score(value=holds, comment=None if holds else f"wanted {_names(expected)}; got {_names(actual)}")


def _same(arguments: str) -> CallScore:
    if arguments == "ignored":
        return lambda expected, actual: float(expected.name == actual.name)
    if arguments == "per_argument":
        raise ValueError("arguments: got 'per_argument', wanted one of ignored, exact, types, allowed")
    score_call = rule(arguments)
    return lambda expected, actual: float(score_call(expected, actual) == 1)


def _holds(mode: Mode, expected: Sequence[Call], actual: Sequence[Call], same: CallScore) -> bool:
    if mode == "strict":
        return len(expected) == len(actual) and all(map(same, expected, actual))
    pairs = len(paired(expected, actual, same).pairs)
    enough = {
        "unordered": pairs == len(expected) == len(actual),
        "subset": pairs == len(actual),
        "superset": pairs == len(expected),
    }
    return enough[mode]


def _names(calls: Sequence[Call]) -> str:
    return ", ".join(call.name for call in calls) or "no call"


def _metrics(name: str, settings: Mapping[str, Any]) -> dict[str, Direction]:
    return {metric: zero_to_one() for metric in (name, "tool_precision", "tool_recall")}


@declares(_metrics)
@needs_reference
def tool_selection(
    inputs: dict[str, Any] | None,
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    run: RunView | None = None,
    *,
    key: str | None = None,
) -> list[Score] | None:
    """F1 of the called tools against the expected tools, 0 to 1; the comment lists the differences.

    Two more metrics are `tool_precision` (the share of actual calls that were expected) and `tool_recall` (the share of
    expected calls that were made). A tool that is expected twice counts twice. None without calls in the reference (its
    `tool_calls`, `messages`, or the field `key`). If no call is expected and none is made, all three are 1; with calls
    on one side only, all three are 0. It cannot see the arguments, the order, or what the tools returned.
    """
    reference_calls = expected_calls(reference_outputs, key, inputs)
    if reference_calls is None:
        return None
    actual = Counter(call.name for call in read_trajectory(outputs, inputs, run).tool_calls)
    expected = Counter(call.name for call in reference_calls)
    hits, n_actual, n_expected = (actual & expected).total(), actual.total(), expected.total()
    f1 = 2 * hits / (n_actual + n_expected) if n_actual + n_expected else 1.0
    both_empty = float(n_actual == n_expected == 0)
    return [
        Score(value=f1, comment=_difference(expected, actual)),
        Score(key="tool_precision", value=hits / n_actual if n_actual else both_empty),
        Score(key="tool_recall", value=hits / n_expected if n_expected else both_empty),
    ]


def _difference(expected: Counter[str], actual: Counter[str]) -> str | None:
    missing, extra = expected - actual, actual - expected
    parts = [f"not called: {', '.join(missing.elements())}"] if missing else []
    parts += [f"not wanted: {', '.join(extra.elements())}"] if extra else []
    return "; ".join(parts) or None


PARTS = ("selection", "arguments", "order", "efficiency", "answer")


def _agent_metrics(name: str, settings: Mapping[str, Any]) -> dict[str, Direction]:
    parts = settings.get("weights") or PARTS
    return {metric: zero_to_one() for metric in [name, *(f"agent_{part}" for part in PARTS if part in parts)]}


@declares(_agent_metrics)
def agent(
    inputs: dict[str, Any] | None,
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    run: RunView | None = None,
    metadata: dict[str, Any] | None = None,
    *,
    weights: Mapping[str, float] | None = None,
    arguments: Rule = "exact",
    tools: Sequence[Mapping[str, Any]] | str | None = None,
    numbers: Numbers = "equal",
    extra_calls: str = "wrong",
    order: Mode = "strict",
    answer: How = "exact",
    ignore_case: bool = False,
    key: str | None = None,
    answer_key: str | None = None,
) -> list[Score] | None:
    """The weighted mean of the parts that apply, 0 to 1; each part is also a metric, named `agent_` and the part.

    The parts are the scores of other evaluators: selection (`tool_selection`'s F1), arguments (`tool_arguments`, with
    `arguments`, `tools`, `numbers`, `extra_calls`), order (`tool_order`, with `order` as its mode), efficiency
    (`step_efficiency`), answer (`final_answer`, with `answer` as its how, `ignore_case`, and `answer_key` as its key).
    `weights` maps parts to weights: by default all are 1; if set, only the named parts are judged, and a part with
    weight 0 is reported but not counted. A part that does not apply is left out with its weight. None if no part
    applies. It cannot see more than its parts do, and a mean hides which part is bad, so look at the parts.
    """
    part_weights = _weights(weights)
    fields: Any = {"inputs": inputs, "outputs": outputs, "reference_outputs": reference_outputs}
    call_fields: Any = fields | {"run": run, "key": key}
    judged: dict[str, Callable[[], Score | list[Score] | None]] = {
        "selection": lambda: tool_selection(**call_fields),
        "arguments": lambda: tool_arguments(
            **call_fields,
            metadata=metadata,
            arguments=arguments,
            tools=tools,
            numbers=numbers,
            extra_calls=extra_calls,
        ),
        "order": lambda: tool_order(**call_fields, mode=order),
        "efficiency": lambda: step_efficiency(**call_fields),
        "answer": lambda: final_answer(**fields, how=answer, ignore_case=ignore_case, key=answer_key),
    }
    parts = {part: _first(judged[part]()) for part in PARTS if part in part_weights}
    return _combined(parts, part_weights)


def _first(returned: Score | list[Score] | None) -> Score:
    score = returned[0] if isinstance(returned, list) else returned
    return score or Score()


def _combined(parts: Mapping[str, Score], weights: Mapping[str, float]) -> list[Score] | None:
    known = {part: float(score.value) for part, score in parts.items() if score.value is not None}
    if not known:
        return None
    total = sum(weights[part] for part in known)
    mean = sum(weights[part] * value for part, value in known.items()) / total if total else None
    comment = ", ".join(f"{part} {value:.2f}" for part, value in known.items())
    metrics = [Score(key=f"agent_{part}", value=score.value, comment=score.comment) for part, score in parts.items()]
    return [Score(value=mean, comment=comment), *metrics]


def _weights(weights: Mapping[str, float] | None) -> Mapping[str, float]:
    if weights is None:
        return dict.fromkeys(PARTS, 1.0)
    if not isinstance(weights, Mapping) or not weights:
        raise ValueError(f"weights: got {short(weights)}, wanted a mapping from parts to weights")
    for part, weight in weights.items():
        if part not in PARTS:
            raise ValueError(f"weights: got {short(part)}, wanted any of {', '.join(PARTS)}")
        is_number = isinstance(weight, int | float) and not isinstance(weight, bool) and math.isfinite(weight)
        if not is_number or weight < 0:
            raise ValueError(f"weights: {part}: got {short(weight)}, wanted a number of at least 0")
    if not any(weights.values()):
        raise ValueError("weights: got weights that are all 0, wanted one above 0")
    return weights


PROMPT = (Path(__file__).parent.parent / "prompts" / "trajectory.md").read_text(encoding="utf-8")
RUBRIC = """\
- Each step serves the task and follows from what was known by then; no step is made up, repeated or useless.
- The tools are suitable, and their arguments come from the task or from earlier results.
- Errors and surprising results are noticed and dealt with.
- The task is done in the end, and the final answer is supported by the results."""

_STEP_FIELDS = ("tool_calls", "messages", "reasoning_steps")


@declares(on_the_scale)
async def trajectory(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    metadata: dict[str, Any] | None,
    complete: Complete,
    run: RunView | None = None,
    *,
    rubric: str = RUBRIC,
    prompt: str = PROMPT,
    reference: bool = True,
    criteria: Mapping[str, Mapping[str, Any] | str | None] | None = None,
    scale: Sequence[int] = SCALE,
    labels: Sequence[str] | Mapping[str, float] | None = None,
    reasoning: Reasoning = "before",
    temperature: float | Literal["auto"] | None = "auto",
    repeats: int = 1,
    combine: Combine | None = None,
) -> Score | list[Score]:
    """How well the agent handled the task, from its first step to its answer, as judged by a model.

    The model sees everything at once, as numbered lines of JSON: texts, calls and results, as far as the outputs or the
    run's steps have them. The reference is shown the same way if it has `tool_calls`, `messages`,
    `reasoning_steps` or a final answer; with `reference` false it is not shown. The other settings are those of
    `rubric`: what to judge by, one score from 1 to 5 or labels or several criteria, repeats. Higher is better.

    Raise ValueError before any call for an invalid setting. It cannot see what is in neither outputs nor steps, nor
    whether a tool's result was true; long trajectories may not fit into the model's context; and it is only as good as
    its model: validate it against people before you rely on it.
    """
    if not isinstance(reference, bool):
        raise ValueError(f"reference: got {reference!r}, wanted true or false")
    expected = _reference(reference_outputs, inputs) if reference else None
    actual = {"output": transcript(outputs, inputs, run)}
    settings: Any = {"rubric": rubric, "prompt": prompt, "criteria": criteria, "scale": scale, "labels": labels}
    settings |= {"reasoning": reasoning, "temperature": temperature, "repeats": repeats, "combine": combine}
    return await judged(inputs, actual, expected, metadata, complete, **settings)


def _reference(reference_outputs: dict[str, Any] | None, inputs: dict[str, Any]) -> dict[str, Any] | None:
    """Return the reference as the judge reads it; None if it has no part of a trajectory."""
    fields = reference_outputs or {}
    has_steps = any(fields.get(name) is not None for name in _STEP_FIELDS)
    if not has_steps and read_trajectory(fields, inputs).final_answer is None:
        return None
    return {"output": transcript(fields, inputs)}
