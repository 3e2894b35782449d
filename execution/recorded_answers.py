"""Recorded answers: looked up, and judged in the same pass if all evaluators are rules.

Otherwise the answers would be written, read and parsed again before they are judged, which takes longer than most
rules.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack
from datetime import datetime
from itertools import chain
from typing import Any

from evalflows.execution.chunk_judging import judging_of, size_of_answer
from evalflows.execution.chunks import Chunk, Rounds
from evalflows.execution.evaluation_result import Columns
from evalflows.execution.judging import Judging, Run
from evalflows.execution.progress import tally
from evalflows.execution.run_rows import raised, returned, run_id
from evalflows.execution.running_experiment import RunningExperiment, running_experiment
from evalflows.execution.views import example_view
from evalflows.llm import loop
from evalflows.store.examples import in_blocks, size_of
from evalflows.store.records import ExampleRow, from_json, now
from evalflows.store.schemas import records_of
from evalflows.store.spool import Spool

Found = tuple[ExampleRow, dict[str, Any]]
"""An example, and the columns of its recorded answer."""


def look_up_rounds(rounds: Rounds, pending: Sequence[Sequence[int]], *, judge: bool) -> dict[Chunk, int]:
    """Look up the recorded answers to the pending examples of each chunk, and with `judge` judge them.

    Return the number of judgements that a retry may bring, by chunk.
    """
    count = Counter(chain.from_iterable(pending))
    in_rounds = {number for number, targets in count.items() if targets > 1}
    experiments = [running_experiment(chunk.experiment_id) for chunk in rounds.chunks]
    with ExitStack() as open_until_done:
        lookups = [
            _LookUp(experiment, chunk, numbers, in_rounds, judge, open_until_done)
            for experiment, chunk, numbers in zip(experiments, rounds.chunks, pending, strict=True)
        ]
        for block in in_blocks(experiments[0].examples.rows(sorted(count)), size_of):
            began = now()
            for each in lookups:
                each.handle(block, began)
    return {each.chunk: each.transient for each in lookups}


class _LookUp:
    """The recorded answers of one chunk. None is on disk before the part: a lookup is cheap to redo."""

    def __init__(
        self,
        experiment: RunningExperiment,
        chunk: Chunk,
        pending: Sequence[int],
        in_rounds: Set[int],
        judge: bool,
        open_until_done: ExitStack,
    ) -> None:
        ids = experiment.examples.ids[chunk.start : chunk.stop]  # of an Arrow column, one by one they would take longer
        self.chunk, self._experiment = chunk, experiment
        self._pending = {ids[number - chunk.start]: number in in_rounds for number in pending}
        self._spool = open_until_done.enter_context(Spool(experiment.store, chunk.experiment_id, chunk.part))
        self._count = tally.begin(chunk, "answers", chunk.stop - chunk.start - len(pending))
        self._judging: Judging | None = judging_of(experiment, chunk, self._spool) if judge else None
        self._unrecorded = None if experiment.target_may_call else 0

    @property
    def transient(self) -> int:
        return self._judging.transient if self._judging else 0

    def handle(self, examples: Sequence[ExampleRow], began: datetime) -> None:
        """Look up and judge the pending ones of the examples, as many at a time as fit in memory with their answers."""
        for found in in_blocks(self._found(examples), _size):
            loop.raise_if_stopped()
            runs = self._kept(found, began)
            if self._judging is not None:
                loop.run(self._judging.judge(runs))

    def _found(self, examples: Sequence[ExampleRow]) -> Iterator[Found]:
        return ((example, self._answer(example)) for example in examples if example.example_id in self._pending)

    def _answer(self, example: ExampleRow) -> dict[str, Any]:
        try:
            return returned(self._experiment.target.call(_Asked(example, self.chunk.repetition)))
        except Exception as error:
            return raised(error)

    def _kept(self, found: Sequence[Found], began: datetime) -> list[Run]:
        """Add the answers to the part, and return them with their examples."""
        examples, results = zip(*found, strict=True)
        columns = self._columns(examples, results, began)
        self._spool.add_columns("outputs", columns)
        self._count(len(found))
        return [*zip(examples, records_of("outputs", columns, len(found)), strict=True)] if self._judging else []

    def _columns(
        self, examples: Sequence[ExampleRow], results: Sequence[Mapping[str, Any]], began: datetime
    ) -> Columns:
        """Return the columns of the runs."""
        count, ids = len(examples), [example.example_id for example in examples]
        usual = {"attempts": 1, "calls": self._unrecorded, "calls_cached": self._unrecorded}
        names = dict.fromkeys(chain(usual, *results))
        return {name: [result.get(name, usual.get(name)) for result in results] for name in names} | {
            "run_id": [run_id(self.chunk, identity) for identity in ids],
            "experiment_id": [self.chunk.experiment_id] * count,
            "example_id": ids,
            "repetition": [self.chunk.repetition] * count,
            "started_at": [began] * count,
            "round_at": [began if self._pending[identity] else None for identity in ids],
            "recorded_at": [now()] * count,
        }


def _size(found: Found) -> int:
    """Return the bytes of an answer: its example is in memory anyway."""
    _, columns = found
    return size_of_answer(columns.get("outputs"), columns.get("steps"))


class _Asked(dict[str, Any]):
    """The arguments of a recorded target, each made when it asks for it: a look-up needs one or two."""

    def __init__(self, example: ExampleRow, repetition: int) -> None:
        self._example, self._repetition = example, repetition

    def __missing__(self, name: str) -> Any:
        return _PARTS[name](self._example, self._repetition)


_PARTS: Mapping[str, Callable[[ExampleRow, int], Any]] = {
    "example_id": lambda example, _: example.example_id,
    "repetition": lambda _, repetition: repetition,
    "inputs": lambda example, _: from_json(example.inputs),
    "metadata": lambda example, _: from_json(example.metadata) or {},
    "example": lambda example, _: example_view(example),
}
