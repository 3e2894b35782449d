"""What a trace was asked and what it answered, which its root does not always say."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from evalflows.telemetry.messages import answer_text, last_user_text
from evalflows.telemetry.views import ObservationView

STEPS = ("span", "chain", "agent")
"""Types that may do the work of a whole trace."""


def content_of(root: ObservationView, observations: Sequence[ObservationView]) -> tuple[Any, Any]:
    """Return the input and the output of a trace; None for what was not captured.

    They are those of the root. If it captured neither (a web server's span, say), those of the only step below it that
    did, and else of the last model call that answered with text. Messages are shortened to what a judge compares: the
    user's last message, and the text of the answer.
    """
    speaker = root if _has_content(root) else _only_step(root, observations) or _last_answer(observations)
    if speaker is None:
        return None, None
    return _asked(speaker), _answered(speaker)


def _has_content(observation: ObservationView) -> bool:
    return observation.input is not None or observation.output is not None


def _only_step(root: ObservationView, observations: Sequence[ObservationView]) -> ObservationView | None:
    """Return the step that captured content nearest below the root, if nothing beside it did."""
    below: defaultdict[str | None, list[ObservationView]] = defaultdict(list)
    for observation in observations:
        below[observation.parent_id].append(observation)
    level, seen = below[root.id], {root.id}
    while level:
        if filled := [observation for observation in level if _has_content(observation)]:
            return filled[0] if len(filled) == 1 and filled[0].type in STEPS else None
        seen |= {observation.id for observation in level}
        level = [child for parent in level for child in below[parent.id] if child.id not in seen]
    return None


def _last_answer(observations: Sequence[ObservationView]) -> ObservationView | None:
    made = [observation for observation in observations if observation.type == "generation" and observation.messages]
    said = [observation for observation in made if answer_text(_messages(observation.output)) is not None]
    return next(reversed(said or made), None)


def _asked(observation: ObservationView) -> Any:
    messages = _messages(observation.input)
    text = last_user_text(messages)
    return observation.input if text is None else text


def _answered(observation: ObservationView) -> Any:
    text = answer_text(_messages(observation.output))
    return observation.output if text is None else text


def _messages(value: Any) -> list[dict[str, Any]]:
    """Return the messages of a model call's side; an empty list if it is anything else."""
    is_side = isinstance(value, dict) and value.keys() == {"messages"} and isinstance(value["messages"], list)
    messages = value["messages"] if is_side else []
    return [message for message in messages if isinstance(message, dict) and "role" in message]
