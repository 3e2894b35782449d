from collections.abc import Sequence

from evaluators.pairwise.recording import found_in, recording
from evaluators.preference import Preference
from evaluators.subject import ExampleView, RunView
from specs.reference import FILES


def recorded_preference(runs: Sequence[RunView], example: ExampleView, *, path: str) -> Preference:
    """Which of two answers somebody found better before: people, or another judge. Nobody is asked.

    `path` is a file of rows {"example_id", "first", "second", "winner" or "scores"}, .jsonl or .csv, packed with gzip
    (.gz) or not; `${NAME}` in it is an environment variable. `first` and `second` are the names of two experiments, or
    of their targets. `winner` is first, second or tie (also A, B, 1, 2, 0), `scores` are two numbers of which the
    higher wins. A `comment` is kept; a `repetition`, from 0, says which one is meant, else it is every one.

    A verdict in the other order is turned round, and kept as one in that order: so what is told of a preference for a
    place is the recording's. Where both orders were recorded, the one that is asked for counts. The metadata tell who
    was the first then (`recorded_first`), by which the A and B of a comment are to be read.

    Raises LookupError for a pair without a verdict, which is missing then, and ValueError for a file that cannot be
    used, such as one with two verdicts on the same two in the same order. It cannot see whether the answers are still
    those that the verdict was on.
    """
    verdicts = recording(path)
    first, second = runs
    found = found_in(verdicts, example.id, first.repetition, _names(first), _names(second))
    if found is None:
        shown = " against ".join(repr(next(iter(_names(run)), run.id)) for run in (first, second))
        raise LookupError(f"{path} has no verdict on example {example.id!r} for {shown}")
    return found


setattr(recorded_preference, FILES, ("path",))  # as a plain attribute no type checker would have it


def _names(run: RunView) -> list[str]:
    return [name for name in (run.experiment, run.target) if name]
