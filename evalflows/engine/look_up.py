"""Answer by looking up recorded answers, and judge them in the same pass.

Otherwise the answers would be written, read and parsed again before they are judged, which takes longer than most
rules.
"""

from collections import Counter
from collections.abc import Sequence, Set
from contextlib import ExitStack
from datetime import datetime
from itertools import chain, starmap

from evalflows.engine.chunks import ExampleChunk, Rounds
from evalflows.engine.experiments import Answered, Context, Experiment, experiments_in, size_of_answer
from evalflows.engine.judge_chunk import Judging, Outcome
from evalflows.engine.results import Columns
from evalflows.engine.run_columns import RunColumns, raised, returned
from evalflows.engine.views import RequestedInputs, run_id
from evalflows.llm import loop
from evalflows.store.records import ExampleRow, now
from evalflows.store.schemas import records_of
from evalflows.store.snapshots import in_blocks, size_of
from evalflows.store.spool import Spool

Found = tuple[ExampleRow, RunColumns]
"""An example, and the columns of its recorded answer."""


def look_up_rounds(
    run: Context, rounds: Rounds, pending: Sequence[Sequence[int]], *, judge: bool
) -> dict[ExampleChunk, Outcome]:
    """Look up the recorded answers to the pending examples of each chunk, and with `judge` judge them."""
    count = Counter(chain.from_iterable(pending))
    in_rounds = {number for number, targets in count.items() if targets > 1}
    experiments = experiments_in(run, rounds)
    with ExitStack() as open_until_done:
        lookups = [
            _LookUp(experiment, chunk, numbers, in_rounds, judge, open_until_done)
            for experiment, chunk, numbers in zip(experiments, rounds.chunks, pending, strict=True)
        ]
        for block in in_blocks(experiments[0].examples.rows(sorted(count)), size_of):
            began = now()
            for each in lookups:
                each.handle(block, began)
    return {each.chunk: each.outcome for each in lookups}


class _LookUp:
    """The recorded answers of one chunk. None is on disk before the part: a lookup is cheap to redo."""

    def __init__(
        self,
        experiment: Experiment,
        chunk: ExampleChunk,
        pending: Sequence[int],
        in_rounds: Set[int],
        judge: bool,
        open_until_done: ExitStack,
    ) -> None:
        ids = experiment.examples.ids[chunk.start : chunk.stop]  # of an Arrow column, one by one they would take longer
        self.chunk, self._experiment = chunk, experiment
        self._pending = {ids[number - chunk.start]: number in in_rounds for number in pending}
        self._spool = open_until_done.enter_context(Spool(experiment.store, chunk.experiment_id, chunk.part_name))
        self._tally = experiment.run.tally
        self._count = self._tally.begin(chunk, "answers", chunk.n_items - len(pending))
        self._judging = Judging(experiment, chunk, self._spool, experiment.load(chunk).before) if judge else None
        self._unrecorded = None if experiment.target_may_call else 0

    @property
    def outcome(self) -> Outcome:
        transient = self._judging.transient if self._judging else Counter[str]()
        return Outcome(transient, self.chunk.n_items, self.chunk)

    def handle(self, examples: Sequence[ExampleRow], began: datetime) -> None:
        """Look up and judge the pending ones of the examples, as many at a time as fit in memory with their answers."""
        pending = (example for example in examples if example.example_id in self._pending)
        for block in in_blocks(((example, self._answer(example)) for example in pending), _size):
            loop.raise_if_stopped()
            runs = self._kept(block, began)
            if self._judging is not None:
                loop.run(self._judging.judge(runs))

    def _answer(self, example: ExampleRow) -> RunColumns:
        try:
            return returned(self._experiment.target.call(RequestedInputs(example, self.chunk.repetition)))
        except Exception as error:
            return raised(error)

    def _kept(self, found: Sequence[Found], began: datetime) -> list[Answered]:
        """Add the answers to the part, and return them with their examples."""
        examples, results = zip(*found, strict=True)
        columns = self._columns(examples, results, began)
        self._spool.add_columns("outputs", columns)
        self._count(len(found))
        if lost := sum(result["status"] != "ok" for result in results):
            self._tally.lose(self.chunk, "answers", lost)
        rows = records_of("outputs", columns, len(found)) if self._judging else ()
        return [*starmap(Answered, zip(examples, rows, strict=True))] if self._judging else []

    def _columns(self, examples: Sequence[ExampleRow], results: Sequence[RunColumns], began: datetime) -> Columns:
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
