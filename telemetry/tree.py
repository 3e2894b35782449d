"""The observations of a trace as a tree."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from evalflows.telemetry.views import ObservationView


def in_depth(observations: Sequence[ObservationView]) -> Iterator[tuple[int, ObservationView]]:
    """Yield each observation with its depth, below its parent; below nothing if the parent is missing, or itself."""
    below: defaultdict[str | None, list[ObservationView]] = defaultdict(list)
    known = {observation.id for observation in observations}
    for observation in observations:
        below[observation.parent_id if observation.parent_id in known else None].append(observation)
    seen: set[str] = set()
    stack = [(0, root) for root in reversed(below[None])]
    for left in (None, *observations):  # what is only its own ancestor stands at the top, too
        stack += [(0, left)] if left is not None and left.id not in seen else []
        while stack:
            depth, observation = stack.pop()
            if observation.id not in seen:
                seen.add(observation.id)
                yield depth, observation
                stack += [(depth + 1, child) for child in reversed(below[observation.id])]
