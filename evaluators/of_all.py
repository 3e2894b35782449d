"""Evaluators that compare all candidates' answers to an example at once: asked once for all pairs of these, and what
they return as the scores of each pair."""

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import field
from threading import Lock
from typing import Any, Protocol

from evalflows.evaluators.score import as_number
from evalflows.evaluators.views import RunView, names_of
from evalflows.specs.comparison import OrderStatus
from evalflows.specs.errors import short
from evalflows.specs.frozen import dataclass

OF_ALL = "of_all"
"""The argument that holds the answers of all candidates beside those of a pair."""

WANTED = "a score for each candidate, as a list in the order of `outputs` or by name"


class WantsPairError(Exception):
    """Raised by a function that wants the runs of one pair, when it is given those of all."""


class Asked(Protocol):
    """An evaluator that can be called."""

    @property
    def name(self) -> str: ...

    @property
    def is_async(self) -> bool: ...

    def call(self, available: Mapping[str, Any]) -> Any: ...


@dataclass(frozen=True, slots=True)
class SharedReturns:
    """What evaluators returned about all candidates, by what names the evaluator and the runs. Errors are not kept, so
    that another attempt asks again."""

    _futures: dict[Hashable, Future[Any]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def begin(self, key: Hashable) -> tuple[bool, Future[Any]]:
        """Return whether the caller is the first, who then asks, and where the answer will be."""
        with self._lock:
            return key not in self._futures, self._futures.setdefault(key, Future())

    def fail(self, key: Hashable, error: BaseException) -> None:
        """Tell those who wait of an error."""
        future = self._futures[key]
        if not isinstance(error, WantsPairError):
            with self._lock:
                del self._futures[key]
        future.set_exception(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfAll:
    """The answers of all candidates to the example of a pair, for evaluators that compare them at once."""

    key: Hashable  # of the example, its repetition and the order
    offer: Callable[[], dict[str, Any]]
    shared: SharedReturns
    order_status: OrderStatus

    def ask(self, bound: Asked, available: Mapping[str, Any]) -> Any:
        """Return what the evaluator returns about all, or an awaitable if it is async; only the first pair asks."""
        of_pair = {name: value for name, value in available.items() if name != OF_ALL}
        key = (bound.name, self.key)
        is_first, future = self.shared.begin(key)
        offered = of_pair | self.offer()
        if bound.is_async:
            return self._awaited(bound, key, future, offered if is_first else None, of_pair)
        if is_first:
            try:
                future.set_result(bound.call(offered))
            except BaseException as error:
                self.shared.fail(key, error)
        try:
            return ReturnedOfAll(future.result(), offered["runs"], self.order_status)
        except WantsPairError:
            return bound.call(of_pair)

    async def _awaited(
        self,
        bound: Asked,
        key: Hashable,
        future: Future[Any],
        offered: Mapping[str, Any] | None,
        of_pair: Mapping[str, Any],
    ) -> Any:
        if offered is not None:
            try:
                future.set_result(await bound.call(offered))
            except WantsPairError as error:
                self.shared.fail(key, error)
            except BaseException as error:
                self.shared.fail(key, error)
                raise
        try:
            return ReturnedOfAll(await asyncio.wrap_future(future), self.offer()["runs"], self.order_status)
        except WantsPairError:
            return await bound.call(of_pair)


@dataclass(frozen=True, slots=True)
class ReturnedOfAll:
    """What an evaluator returned about all candidates."""

    returned: Any
    runs: Sequence[RunView]
    order_status: OrderStatus

    def of_pair(self, run_ids: Sequence[str]) -> object:
        """Return it as the preferences between two of the runs, with their scores.

        Raise TypeError or ValueError if it does not have a score for each candidate.
        """
        if self.returned is None:
            return None
        results = [self._fields(result) for result in results_in(self.returned)]
        pairs = [{run: fields["scores"][run] for run in run_ids} for fields in results]
        order = {} if self.order_status == "known" else {"order_status": self.order_status}
        return [{**fields, "scores": scores, **order} for fields, scores in zip(results, pairs, strict=True)]

    def _fields(self, result: Any) -> dict[str, Any]:
        """Return one result with its scores, and its comments if there are several, by run."""
        known = self._runs_by_name()
        if _are_numbers(result):
            fields: dict[str, Any] = {"scores": result}
        elif not isinstance(result, Mapping):
            names = ("key", "scores", "ranks", "comment", "metadata")
            fields = {name: getattr(result, name) for name in names if hasattr(result, name)}
        elif result.keys() & {"scores", "ranks"} and not {"scores", "ranks"} & known.keys():
            fields = {**result}
        else:
            fields = {"scores": result}
        if "ranks" in fields:
            ranks = self._by_run(fields.pop("ranks"), known)
            numbers = {run: as_number(rank) for run, rank in ranks.items()}
            fields["scores"] = {run: None if number is None else -number for run, number in numbers.items()}
        elif "scores" in fields:
            fields["scores"] = self._by_run(fields["scores"], known)
        else:
            raise TypeError(f"returned {type(result).__name__}, wanted {WANTED}")
        if isinstance(comment := fields.get("comment"), Mapping):
            fields["comment"] = {known.get(str(name), str(name)): text for name, text in comment.items()}
        return fields

    def _runs_by_name(self) -> dict[str, str]:
        """Return the runs by every name that tells them apart."""
        by_id = {run.id: run.id for run in self.runs}
        names = [[run.target for run in self.runs], [run.experiment for run in self.runs], names_of(self.runs)]
        unique = [zip(given, by_id, strict=True) for given in names if len({*given}) == len(given)]
        return {name: run for pairs in unique for name, run in pairs} | by_id

    def _by_run(self, scores: Any, known: Mapping[str, str]) -> dict[str, Any]:
        names = names_of(self.runs)
        if isinstance(scores, Mapping):
            found = {known.get(str(name), str(name)): score for name, score in scores.items()}
            if found.keys() != {run.id for run in self.runs}:
                got = short([str(name) for name in scores])
                raise ValueError(f"returned scores for {got}, wanted one for each of {', '.join(names)}")
        elif isinstance(scores, list | tuple) and len(scores) == len(names):
            found = {run.id: score for run, score in zip(self.runs, scores, strict=True)}
        else:
            raise ValueError(f"returned the scores {short(scores)}, wanted {len(names)}: {', '.join(names)}")
        return found


def results_in(returned: Any) -> Sequence[Any]:
    """Return the results in what an evaluator returned: itself, or those of a list."""
    if isinstance(returned, Mapping) and "results" in returned:
        returned = returned["results"]
    is_list = isinstance(returned, list | tuple) and not _are_numbers(returned)
    return returned if is_list else [returned]


def _are_numbers(returned: Any) -> bool:
    if not isinstance(returned, list | tuple) or not returned:
        return False
    return all(item is None or as_number(item) is not None for item in returned)
