from collections.abc import Sequence
from dataclasses import replace
from typing import cast, get_args

from evalflows.evaluators.pairwise.recording import NoVerdict, look_up, recording
from evalflows.evaluators.preference import Preference
from evalflows.evaluators.subject import ExampleView, RunView
from evalflows.specs.reference import FILES
from evalflows.specs.votes import OrderStatus


def recorded_preference(
    runs: Sequence[RunView], example: ExampleView, *, path: str, order: OrderStatus | None = None
) -> Preference | None:
    """Which of two answers was preferred in a recording, by people or another judge. It makes no call.

    `path` is a .jsonl or .csv file, optionally compressed with gzip (.gz), of rows {"example_id", "first", "second",
    "winner" or "scores"}; `${NAME}` in it is an environment variable. `first` and `second` are the names of two
    experiments, or of their targets. `winner` is first, second or tie (also A, B, 1, 2, 0); of two `scores` the higher
    wins. A `comment` is kept; a `repetition`, from 0, limits a row to that repetition.

    `order` says what is known of the order in which the two were shown: `known` (`first` was shown first), `drawn` (at
    random, but not recorded) or `unknown`; by default it is known if the file has any two names in both orders, else
    unknown. If it is known, a verdict in the other order is swapped but stored with its recorded order, so an estimated
    position bias is that of the recording, and if both orders were recorded, the requested one is used. The metadata
    says which answer was first in the recording (`recorded_first`), which is needed to read A and B in a comment.

    A row may say that there is no verdict in this order: `winner` null with a `status`, failed or not_applicable.

    Raise LookupError for a pair without a verdict, which is then missing, and ValueError for an invalid file, for
    example with two verdicts on the same pair in the same order. It cannot see whether the answers are still those that
    were judged.
    """
    recorded = recording(path)
    first, second = runs
    verdict = look_up(recorded, example.id, first.repetition, _names(first), _names(second))
    if verdict is None:
        shown = " against ".join(repr(next(iter(_names(run)), run.id)) for run in (first, second))
        raise LookupError(f"{path} has no verdict on example {example.id!r} for {shown}")
    if isinstance(verdict, NoVerdict):
        if verdict.status == "failed":
            raise LookupError(f"{verdict.where}: recorded without a verdict{_because(verdict.comment)}")
        return None
    return replace(verdict, order_status=_checked_order(order) or recorded.order_status)


def _because(comment: str | None) -> str:
    return f": {comment}" if comment else ""


def _checked_order(order: object) -> OrderStatus | None:
    if order not in (None, *get_args(OrderStatus)):
        raise ValueError(f"order: got {order!r}, wanted one of {', '.join(get_args(OrderStatus))}")
    return cast("OrderStatus | None", order)


setattr(recorded_preference, FILES, ("path",))  # type checkers reject a plain attribute on a function


def _names(run: RunView) -> list[str]:
    return [name for name in (run.experiment, run.target) if name]
