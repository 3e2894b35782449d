"""Judge the steps of an agent by a model."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from evalflows.evaluators.agents.trajectory import read_trajectory
from evalflows.evaluators.agents.transcript import transcript
from evalflows.evaluators.declarations import declares, on_the_scale
from evalflows.evaluators.judges.rubric import rubric as judged
from evalflows.evaluators.scales import SCALE, Combine, Reasoning
from evalflows.evaluators.score import Score
from evalflows.evaluators.views import RunView
from evalflows.specs.protocols import Complete

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
