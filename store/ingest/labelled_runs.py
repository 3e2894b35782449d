"""Find the run that each row of a label file refers to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalflows.specs.errors import InputError
from evalflows.store.ingest.label_values import whole_number
from evalflows.store.parquet import Store
from evalflows.store.queries.lookup import find_experiments


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of an experiment."""

    run_id: str
    experiment_id: str
    name: str  # of the experiment
    example_id: str
    repetition: int

    @property
    def names(self) -> tuple[str, str]:
        """The experiment's name and id, either of which may be used for it."""
        return self.name, self.experiment_id


class Runs:
    """The runs of all experiments that the rows refer to, read once."""

    def __init__(self, store: Store, rows: Sequence[Mapping[str, Any]]) -> None:
        self._store = store
        self._experiments: dict[str, str] = {}
        self._by_id: dict[str, Run] = {}
        self._by_example: dict[tuple[str, str], dict[int, Run]] = {}  # by experiment and example, then by repetition
        identities = sorted({str(row["run_id"]) for row in rows if row.get("run_id") is not None})
        query = "select distinct experiment_id from source.outputs where list_contains(?, run_id)"
        for (experiment,) in store.query(query, [identities]) if identities else ():
            self._read(experiment)

    def find(self, row: Mapping[str, Any]) -> Run:
        """Return the run with `run_id`, or with `experiment`, `example_id` and `repetition`.

        Raises InputError if there is no such run.
        """
        if (identity := row.get("run_id")) is not None:
            if str(identity) not in self._by_id:
                raise InputError(
                    f"run_id: got {identity!r}, wanted a run of an experiment in {self._store.layout.root}"
                )
            return self._by_id[str(identity)]
        reference = row.get("experiment") or row.get("experiment_id")
        if reference is None or row.get("example_id") is None:
            got = ", ".join(name for name, value in row.items() if value is not None)
            raise InputError(f"got {got or 'nothing'}, wanted run_id, or experiment and example_id")
        return self._at(self._experiment(str(reference)), str(row["example_id"]), row.get("repetition"))

    def find_other(self, row: Mapping[str, Any]) -> Run | None:
        """Return the run of `other_experiment` on the same example; None if the row has no other experiment."""
        if (reference := row.get("other_experiment")) is None:
            return None
        run, other = self.find(row), self._experiment(str(reference))
        if other == run.experiment_id:
            raise InputError(f"other_experiment: got {reference!r}, the same experiment, wanted another one")
        return self._at(other, run.example_id, run.repetition)

    def _at(self, experiment: str, example: str, repetition: Any) -> Run:
        runs = self._by_example.get((experiment, example), {})
        if repetition is None and len(runs) > 1:
            raise InputError(f"example {example!r} has {len(runs)} runs, wanted a column repetition, from 0")
        number = 0 if repetition is None else whole_number("repetition", repetition)
        if number not in runs:
            raise InputError(f"example_id: got {example!r}, but {experiment} has no run of it with repetition {number}")
        return runs[number]

    def _experiment(self, reference: str) -> str:
        if reference not in self._experiments:
            (self._experiments[reference],) = find_experiments(self._store, reference, just_one=True)
            self._read(self._experiments[reference])
        return self._experiments[reference]

    def _read(self, experiment: str) -> None:
        query = """select o.run_id, o.experiment_id, e.name, o.example_id, o.repetition
                   from source.outputs o join source.experiments e using (experiment_id) where o.experiment_id = ?"""
        for row in self._store.query(query, [experiment]):
            run = Run(**dict(zip(Run.__slots__, row, strict=True)))
            self._by_id[run.run_id] = run
            self._by_example.setdefault((run.experiment_id, run.example_id), {})[run.repetition] = run
