from collections.abc import Sequence

from evalflows.evaluators.pairwise.recording import look_up, recording
from evalflows.evaluators.preference import Preference
from evalflows.evaluators.subject import ExampleView, RunView
from evalflows.specs.reference import FILES


def recorded_preference(runs: Sequence[RunView], example: ExampleView, *, path: str) -> Preference:
    """Which of two answers was preferred in a recording, by people or another judge. It makes no call.

    `path` is a .jsonl or .csv file, optionally compressed with gzip (.gz), of rows {"example_id", "first", "second",
    "winner" or "scores"}; `${NAME}` in it is an environment variable. `first` and `second` are the names of two
    experiments, or of their targets. `winner` is first, second or tie (also A, B, 1, 2, 0); of two `scores` the higher
    wins. A `comment` is kept; a `repetition`, from 0, limits a row to that repetition.

    A verdict in the other order is swapped but stored with its recorded order, so an estimated position bias is that of
    the recording. If both orders were recorded, the requested one is used. The metadata says which answer was first in
    the recording (`recorded_first`), which is needed to read A and B in a comment.

    Raise LookupError for a pair without a verdict, which is then missing, and ValueError for an invalid file, for
    example with two verdicts on the same pair in the same order. It cannot see whether the answers are still those that
    were judged.
    """
    verdicts = recording(path)
    first, second = runs
    preference = look_up(verdicts, example.id, first.repetition, _names(first), _names(second))
    if preference is None:
        shown = " against ".join(repr(next(iter(_names(run)), run.id)) for run in (first, second))
        raise LookupError(f"{path} has no verdict on example {example.id!r} for {shown}")
    return preference


setattr(recorded_preference, FILES, ("path",))  # type checkers reject a plain attribute on a function


def _names(run: RunView) -> list[str]:
    return [name for name in (run.experiment, run.target) if name]
