"""Recorded verdicts on pairs of answers: read them from a file and look them up."""

import csv
import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import product
from pathlib import Path
from threading import Lock
from typing import Any, Literal, TextIO, cast, get_args

from evalflows.evaluators.score import Preference, preferences
from evalflows.evaluators.settings import checked_text
from evalflows.evaluators.views import ExampleView, RunView
from evalflows.specs.comparison import OrderStatus
from evalflows.specs.errors import InputError, short
from evalflows.specs.files import located
from evalflows.specs.frozen import dataclass
from evalflows.specs.reference import FILES

Winner = Literal["first", "second", "tie"]
_WINNERS: Mapping[str, Winner] = {
    **dict.fromkeys(("first", "a", "1", "model_a"), "first"),
    **dict.fromkeys(("second", "b", "2", "model_b"), "second"),
    **dict.fromkeys(("tie", "0", "tie (bothbad)", "both_bad", "bothbad"), "tie"),
}
WithoutVerdict = Literal["failed", "not_applicable"]
WITHOUT_VERDICT: tuple[WithoutVerdict, ...] = get_args(WithoutVerdict)
"""What the status of a row without a winner may be: the judgement failed, or the question does not apply."""

_OTHER: Mapping[Any, Literal["first", "second"]] = {"first": "second", "second": "first"}
_READ_LOCK = Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """What a verdict compares: the answers to an example of two runs, named in the order shown."""

    example_id: str
    first: str
    second: str
    repetition: int | None  # from 0; None for all

    def __str__(self) -> str:
        which = "" if self.repetition is None else f", repetition {self.repetition}"
        return f"{self.first!r} against {self.second!r}, example {self.example_id!r}{which}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoVerdict:
    """A row that says that there is no verdict on a pair in this order."""

    status: WithoutVerdict
    comment: str | None
    where: str  # file and line


@dataclass(frozen=True)
class Recording:
    """The rows of a file by what they judge."""

    verdicts: Mapping[Pair, Preference | NoVerdict]

    @cached_property
    def order_status(self) -> OrderStatus:
        return order_status_of((pair.first, pair.second) for pair in self.verdicts)


def order_status_of(shown: Iterable[tuple[str, str]]) -> OrderStatus:
    """Return known if any two names come in both orders; else the columns may be mere names."""
    orders = {*shown}
    return "known" if any((second, first) in orders for first, second in orders) else "unknown"


def recording(path: str) -> Recording:
    """Return the verdicts of a .jsonl or .csv file, optionally gzipped (.gz); it is read again only if it has changed.

    Raise ValueError, with the line, for an invalid row, for a second verdict on the same pair in the same order, and
    for a file that cannot be read.
    """
    try:
        where = located(checked_text("path", path)).absolute()
        stat = where.stat()
    except InputError as error:
        raise ValueError(f"path: {error}") from error
    except OSError as error:
        raise ValueError(f"path: {path}: cannot be read: {error.strerror or error}") from error
    with _READ_LOCK:  # evaluators run in several threads
        return _read(where, path, stat.st_size, stat.st_mtime_ns)


def look_up(
    recording: Recording, example_id: str, repetition: int, firsts: Sequence[str], seconds: Sequence[str]
) -> Preference | NoVerdict | None:
    """Return the verdict on two answers with any of these names, in the order of the arguments; None without one.

    Verdicts recorded in this order take precedence over swapped ones, and verdicts for this repetition over general
    ones.
    """
    for is_swapped in (False, True):
        for first, second in product(firsts, seconds):
            for number in (repetition, None):
                shown = (second, first) if is_swapped else (first, second)
                pair = Pair(example_id=example_id, first=shown[0], second=shown[1], repetition=number)
                if pair in recording.verdicts:
                    return _swapped(recording.verdicts[pair]) if is_swapped else recording.verdicts[pair]
    return None


def _swapped(preference: Preference | NoVerdict) -> Preference | NoVerdict:
    if isinstance(preference, NoVerdict):
        return preference
    scores = preference.scores
    return replace(
        preference,
        shown_first="second",
        winner=_OTHER.get(preference.winner, preference.winner),
        scores=None if scores is None else (scores[1], scores[0]),
    )


@lru_cache(maxsize=8)
def _read(where: Path, path: str, size: int, mtime_ns: int) -> Recording:
    verdicts: dict[Pair, Preference | NoVerdict] = {}
    for number, row in _rows(where, path):
        try:
            pair = _pair(row)
            if pair in verdicts:
                raise ValueError(f"got a second verdict on {pair}, wanted one verdict, or a repetition for each")
            verdicts[pair] = _preference(row, pair, f"{path}:{number}")
        except (ValueError, TypeError) as error:
            raise ValueError(f"path: {path}:{number}: {error}") from error
    return Recording(verdicts)


def _rows(where: Path, path: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    suffix = where.with_suffix("").suffix if where.suffix == ".gz" else where.suffix
    reader = _READERS.get(suffix.lower())
    if reader is None:
        raise ValueError(f"path: {path}: got {suffix or 'no suffix'}, wanted one of {', '.join(_READERS)}")
    try:
        opened = gzip.open if where.suffix == ".gz" else open
        with opened(where, "rt", encoding="utf-8-sig", newline="") as file:
            yield from reader(file, path)
    except (OSError, EOFError, UnicodeDecodeError, zlib.error, csv.Error) as error:
        raise ValueError(f"path: {path}: cannot be read: {error}") from error


def _from_jsonl(file: Iterable[str], path: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"path: {path}:{number}: not JSON: {error}") from error
        if not isinstance(row, dict):
            raise ValueError(f"path: {path}:{number}: got {short(row)}, wanted an object")
        yield number, row


def _from_csv(file: Iterable[str], path: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Read rows from CSV. An empty cell is a missing value; scores and repetitions are read as JSON."""
    reader = csv.DictReader(file, strict=True)
    for cells in reader:
        if None in cells or None in cells.values():
            raise ValueError(f"path: {path}:{reader.line_num}: wanted {len(reader.fieldnames or ())} cells")
        row: dict[str, Any] = {name: cell for name, cell in cells.items() if cell}
        for name in {"scores", "repetition"} & row.keys():
            try:
                row[name] = json.loads(row[name])
            except ValueError:
                continue  # left as text, which is rejected later
        yield reader.line_num, row


_READERS: Mapping[str, Callable[[TextIO, str], Iterator[tuple[int, Mapping[str, Any]]]]] = {
    ".jsonl": _from_jsonl,
    ".ndjson": _from_jsonl,
    ".csv": _from_csv,
}


def _pair(row: Mapping[str, Any]) -> Pair:
    names = ("example_id", "first", "second")
    for name in names:
        if row.get(name) in (None, ""):
            raise ValueError(f"got {', '.join(map(str, row)) or 'nothing'}, wanted {name!r}")
    example_id, first, second = (str(row[name]) for name in names)
    if first == second:
        raise ValueError(f"got {first!r} as first and as second, wanted two names")
    return Pair(example_id=example_id, first=first, second=second, repetition=_repetition(row.get("repetition")))


def _repetition(given: object) -> int | None:
    if given is None:
        return None
    if not isinstance(given, int) or isinstance(given, bool) or given < 0:
        raise ValueError(f"repetition: got {short(given)}, wanted a whole number from 0")
    return given


def _preference(row: Mapping[str, Any], pair: Pair, where: str) -> Preference | NoVerdict:
    winner, scores, comment = row.get("winner"), row.get("scores"), row.get("comment")
    if winner is None and scores is None:
        return NoVerdict(status=status_without_verdict(row), comment=comment, where=where)
    fields = {"winner": winner_of(winner, pair.first, pair.second), "scores": scores, "comment": comment}
    fields["metadata"] = {"recorded": where, "recorded_first": pair.first}
    return replace(stated(fields), key=None, shown_first="first")


def stated(fields: Mapping[str, Any]) -> Preference:
    """Return the preference that a row's fields state. Raise ValueError for scores that are none or contradict."""
    try:
        (preference,) = preferences(fields, "recorded", ("first", "second"))
    except (ValueError, TypeError) as error:
        raise ValueError(str(error).replace("returned", "got", 1)) from error
    return preference


def winner_of(given: object, first: str, second: str) -> Winner | None:
    """Return which of two named sides wins; None for None. Raise ValueError for anything else."""
    if given is None:
        return None
    by_name: Mapping[str, Winner] = {first: "first", second: "second"}
    side = by_name.get(str(given)) or _WINNERS.get(str(given).strip().lower())
    if side is None:
        wanted = f"{first}, {second}, tie, or first, second, A, B, 1, 2, 0"
        raise ValueError(f"winner: got {short(given)}, wanted {wanted}")
    return side


def status_without_verdict(row: Mapping[str, Any]) -> WithoutVerdict:
    """Return the status of a row without winner and scores. Raise ValueError if it has none of WITHOUT_VERDICT."""
    status = next((status for status in WITHOUT_VERDICT if status == row.get("status")), None)
    if status is None:
        wanted = f"'winner' or 'scores', or a status ({' or '.join(WITHOUT_VERDICT)})"
        raise ValueError(f"got {', '.join(map(str, row))}, wanted {wanted}")
    return status


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
