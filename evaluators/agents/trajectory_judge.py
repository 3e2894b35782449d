from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from evaluators.agents.trajectory import read_trajectory
from evaluators.agents.transcript import transcript
from evaluators.direction import declares, on_the_scale
from evaluators.rubric import rubric as judged
from evaluators.score import Score
from evaluators.sheet import SCALE, Combine, Reasoning
from evaluators.subject import RunView
from specs.protocols import Complete

PROMPT = (Path(__file__).parent.parent / "prompts" / "trajectory.md").read_text(encoding="utf-8")
RUBRIC = """\
- Each step serves the task and follows from what was known by then; none is made up, repeated or for nothing.
- The tools are the fitting ones, and their arguments come from the task or from earlier results.
- Errors and surprising results are noticed and dealt with.
- The task is done in the end, and the final answer says what the results bear out."""

_WAYS = ("tool_calls", "messages", "reasoning_steps")


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
    """How well a model finds that the agent went about the task, from its first step to its answer.

    It is shown everything at once, as numbered entries in one fence: what was said, called and given back, as far as
    the outputs or the run's steps hold it. So it is with the reference, where that has `tool_calls`, `messages` or
    `reasoning_steps`, or a final answer; with `reference` false it is not shown. The other settings are those of
    `rubric`: what to judge by, one score from 1 to 5 or labels or several criteria, repeats. Higher is better.

    Raises ValueError for a setting that cannot be used, before anything is asked. It cannot see what neither outputs
    nor steps hold, nor whether a tool's result was true; long trajectories may not fit into the model; and it is as
    good as its model: compare it with people before you rely on it.
    """
    if not isinstance(reference, bool):
        raise ValueError(f"reference: got {reference!r}, wanted true or false")
    way = _reference(reference_outputs, inputs) if reference else None
    did = {"output": transcript(outputs, inputs, run)}
    settings: Any = {"rubric": rubric, "prompt": prompt, "criteria": criteria, "scale": scale, "labels": labels}
    settings |= {"reasoning": reasoning, "temperature": temperature, "repeats": repeats, "combine": combine}
    return await judged(inputs, did, way, metadata, complete, **settings)


def _reference(reference_outputs: dict[str, Any] | None, inputs: dict[str, Any]) -> dict[str, Any] | None:
    """The reference as the judge reads it; None where it holds nothing of a trajectory."""
    held = reference_outputs or {}
    has_one = any(held.get(name) is not None for name in _WAYS)
    if not has_one and read_trajectory(held, inputs).final_answer is None:
        return None
    return {"output": transcript(held, inputs)}
