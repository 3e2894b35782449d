"""Which rows of which tables are about what a selection names, wherever copies of its texts may have gone.

From an example: its copies in other snapshots, its runs, their scores, judgements, calls and labels, the trace of a
run, and what judged a whole experiment that it is in. From a trace: its observations, scores, calls and labels, and
the examples that were made of it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from evalflows.store.catalog import ask
from evalflows.store.erasing.selection import Selection
from evalflows.store.parquet import Store
from evalflows.store.records import derived_id

Key = tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Subjects:
    """The keys of rows by table, and what the rows belong to."""

    keys: dict[str, list[Key]] = field(default_factory=dict)
    written: dict[str, list[Key]] = field(default_factory=dict)  # by an erased person
    snapshots: set[str] = field(default_factory=set)
    experiments: set[str] = field(default_factory=set)  # of those snapshots
    owners: set[str] = field(default_factory=set)  # experiments, comparisons and trace evaluations with such rows
    leases: dict[str, str] = field(default_factory=dict)  # which whoever works on these owners holds


def subjects_of(store: Store, selection: Selection) -> Subjects:
    """Return what a selection names, from one consistent state of the store."""
    return store.steady(lambda: _Finder(store).of(selection))


def trace_rows(store: Store, traces: Iterable[str]) -> Subjects:
    """Return the rows about traces, without the examples that were made of them."""
    finder = _Finder(store)
    finder.add_traces(sorted(traces))
    return finder.found


class _Finder:
    """Follows texts from table to table."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.found = Subjects()
        self._runs: list[str] = []

    def of(self, selection: Selection) -> Subjects:
        traces = self._traces(selection)
        examples = {*self._named_examples(selection), *self._examples_of(traces)}
        self._add_examples(sorted(self._with_copies(examples)))
        self.add_traces(sorted({*traces, *self._traces_of_runs()}))
        self._add_reviewers([*selection.reviewers, *selection.users])  # whose feedback has their id
        return self.found

    def add_traces(self, traces: Sequence[str]) -> None:
        """Add the rows about traces and their sessions."""
        if not traces:
            return
        self._add(
            "observations", "select trace_id, span_id from source.observations where trace_id in (from wanted)", traces
        )
        sessions = self._ask(
            "select distinct session_id from staging.observations"
            " where trace_id in (from wanted) and session_id is not null",
            traces,
        )
        about = """(subject_kind in ('trace', 'observation') and split_part(subject_id, '/', 1) in (from wanted)
                     or subject_kind = 'session' and subject_id in (select unnest(?::varchar[])))"""
        names = [session for (session,) in sessions]
        for table, column in (("scores", "score_id"), ("labels", "label_id")):
            self._add(table, f"select {column} from source.{table} where {about}", traces, names)
        owners = self._ask(f"select distinct experiment_id from source.scores where {about}", traces, names)
        evaluations = {owner: name for (owner,) in owners if (name := evaluation_of(owner))}
        self.found.owners |= evaluations.keys()
        self.found.leases |= evaluations
        calls = """select call_id from source.calls where split_part(subject_id, '/', 1) in (from wanted)
                   or subject_id in (select unnest(?::varchar[]))"""
        self._add("calls", calls, traces, names)

    # what is named

    def _traces(self, selection: Selection) -> set[str]:
        found = set(selection.traces)
        for column, names in (("session_id", selection.sessions), ("user_id", selection.users)):
            if names:
                query = f"select distinct trace_id from staging.observations where {column} in (from wanted)"
                found |= {trace for (trace,) in self._ask(query, names)}
        return found

    def _named_examples(self, selection: Selection) -> list[Key]:
        if not (selection.examples or selection.where):
            return []
        named = ["example_id in (from wanted)"] if selection.examples else []
        paths: list[object] = []
        if selection.where:
            fields = ["json_extract_string(metadata, ?) = ?" for _ in selection.where]
            named.append(f"({' and '.join(fields)})")
            paths = [text for name, value in selection.where.items() for text in (_path(name), value)]
        within = "true"
        if selection.dataset is not None:
            within = "snapshot_id in (select snapshot_id from source.dataset_versions where name = ?)"
            paths.append(selection.dataset)
        return self._ask(
            f"select snapshot_id, example_id from source.examples where ({' or '.join(named)}) and {within}",
            selection.examples,
            *paths,
        )

    def _examples_of(self, traces: Iterable[str]) -> list[Key]:
        """Return the examples that were made of traces."""
        if not (traces := sorted(traces)):
            return []
        return self._ask(
            """select snapshot_id, example_id from source.examples
               where json_extract_string(metadata, '$.trace_id') in (from wanted)
                     or list_has_any(json_extract_string(metadata, '$.trace_ids[*]'), (select list(id) from wanted))""",
            traces,
        )

    def _with_copies(self, examples: Iterable[Key]) -> list[Key]:
        """Return the examples, and those of the same id and inputs in other snapshots."""
        if not (examples := sorted(examples)):
            return []
        return self._ask(
            f"""with {_EXAMPLES} select distinct other.snapshot_id, other.example_id
                from source.examples one semi join given g using (snapshot_id, example_id)
                join source.examples other on other.example_id = one.example_id and other.inputs = one.inputs""",
            [],
            *_columns(examples),
        )

    # what belongs to it

    def _add_examples(self, examples: Sequence[Key]) -> None:
        if not examples:
            return
        found = self.found
        found.keys["examples"] = [*examples]
        found.snapshots = {snapshot for snapshot, _ in examples}
        rows = self._ask(
            "select experiment_id, run_group, repetitions, snapshot_id from source.experiments"
            " where snapshot_id in (from wanted)",
            sorted(found.snapshots),
        )
        found.experiments = {experiment for experiment, *_ in rows}
        found.leases |= {experiment: group for experiment, group, *_ in rows}
        planned = {
            derived_id(experiment, example, repetition)  # also if the file of its outputs was lost
            for experiment, _, repetitions, snapshot in rows
            for of, example in examples
            if of == snapshot
            for repetition in range(repetitions)
        }
        self._add_runs(examples, planned)
        self._add_scores()
        self._add_comparisons()
        self._add_calls()
        self._add(
            "labels",
            "select label_id from source.labels where subject_id in (from wanted) or other_run_id in (from wanted)",
            self._runs,
        )
        checks = """select check_id from source.checks where subject_kind in ('snapshot', 'experiment', 'comparison')
                    and subject_id in (from wanted)"""
        self._add("checks", checks, sorted({*found.snapshots, *found.experiments, *found.owners}))
        self._add_reasons()
        found.owners |= found.experiments

    def _add_runs(self, examples: Sequence[Key], planned: set[str]) -> None:
        rows = self._ask(
            f"""with {_EXAMPLES}, runs as (
                    select o.run_id from source.outputs o join source.experiments e using (experiment_id)
                    semi join given g on g.snapshot_id = e.snapshot_id and g.example_id = o.example_id)
                from runs union select run_id from source.outputs where reused_from in (from runs)""",
            [],
            *_columns(examples),
        )
        self._runs = sorted({*planned, *(run for (run,) in rows)})
        self.found.keys["outputs"] = [(run,) for run in self._runs]

    def _add_scores(self) -> None:
        """Add the scores of the runs, and those of whole experiments that they are in."""
        self._add(
            "scores",
            """select score_id from source.scores where run_id in (from wanted) or subject_id in (from wanted)
               or run_id is null and experiment_id in (select unnest(?::varchar[]))""",
            self._runs,
            sorted(self.found.experiments),
        )

    def _add_comparisons(self) -> None:
        query = "from source.comparisons where left_run_id in (from wanted) or right_run_id in (from wanted)"
        self._add("comparisons", f"select judgement_id {query}", self._runs)
        comparisons = {identity for (identity,) in self._ask(f"select distinct comparison_id {query}", self._runs)}
        self.found.leases |= {identity: identity for identity in comparisons}
        self.found.owners |= comparisons

    def _add_reasons(self) -> None:
        """Add the experiments and comparisons that are incomplete for a reason that quotes an error."""
        for table, owner, sources in (
            ("experiments", "experiment_id", {"outputs": "run_id", "scores": "score_id"}),
            ("comparison_sets", "comparison_id", {"comparisons": "judgement_id"}),
        ):
            for source, key in sources.items():
                self._add(
                    table,
                    f"""select distinct whole.{owner} from source.{table} whole join source.{source} one using ({owner})
                        where one.{key} in (from wanted) and one.error <> '' and contains(whole.reason, one.error)""",
                    [identity for (identity,) in self.found.keys.get(source, ())],
                )

    def _add_calls(self) -> None:
        """Add the calls for the runs, the pairs and whole experiments, and others with the same requests."""
        others = self._others()
        comparisons = sorted(self.found.owners)
        query = """with about as (
                select * from source.calls
                where subject_id in (from wanted)
                      or experiment_id in (select unnest(?::varchar[]))
                         and (subject_id is null or subject_id not in (select unnest(?::varchar[]))))
            select call_id from source.calls
            where call_id in (select call_id from about) or call_key in (select call_key from about)"""
        self._add("calls", query, self._runs, sorted({*comparisons, *self.found.experiments}), others)

    def _others(self) -> list[str]:
        """Return the subjects of calls in the same experiments and comparisons that are about other examples."""
        runs = self._ask(
            """select run_id from source.outputs
               where experiment_id in (from wanted) and run_id not in (select unnest(?::varchar[]))""",
            sorted(self.found.experiments),
            self._runs,
        )
        pairs = self._ask(
            """select left_run_id, right_run_id, shown_first from source.comparisons
               where comparison_id in (from wanted) and left_run_id not in (select unnest(?::varchar[]))
                     and right_run_id not in (select unnest(?::varchar[]))""",
            sorted(self.found.owners),
            self._runs,
            self._runs,
        )
        return [*(run for (run,) in runs), *(derived_id(*pair) for pair in pairs)]

    def _traces_of_runs(self) -> set[str]:
        query = "select distinct trace_id from source.outputs where trace_id is not null and run_id in (from wanted)"
        return {trace for (trace,) in self._ask(query, self._runs)}

    def _add_reviewers(self, names: Sequence[str]) -> None:
        columns = {"labels": "labeller", "alerts": "acknowledged_by", "baselines": "approved_by"}
        keys = {"labels": "label_id", "alerts": "event_id", "baselines": "baseline_id"}
        for table, column in columns.items() if names else ():
            query = f"select {keys[table]} from source.{table} where {column} in (from wanted)"
            self.found.written[table] = self._ask(query, names)

    def _add(self, table: str, query: str, wanted: Sequence[str], *values: object) -> None:
        known = self.found.keys.setdefault(table, [])
        known += sorted({*self._ask(query, wanted, *values)} - {*known})

    def _ask(self, query: str, wanted: Sequence[str], *values: object) -> list[Any]:
        """Return the rows of a query about what is `wanted`, a table of one column, `id`."""
        head = "with wanted as (select unnest(?::varchar[]) as id)"
        whole = f"{head}, {query.lstrip()[5:]}" if query.lstrip().startswith("with ") else f"{head} {query}"
        (rows,) = ask(self._store, (whole, [list(wanted), *values]))
        return rows


_EXAMPLES = "given as (select unnest(?::varchar[]) as snapshot_id, unnest(?::varchar[]) as example_id)"


def _columns(examples: Sequence[Key]) -> tuple[list[str], list[str]]:
    return [snapshot for snapshot, _ in examples], [example for _, example in examples]


def _path(name: str) -> str:
    """Return the path of a field of metadata; dots lead into nested ones."""
    return "$" + "".join(f'."{part}"' for part in name.split("."))


def evaluation_of(owner: str | None) -> str | None:
    """Return the trace evaluation of the owner of a day's scores, which is its lease; None for another owner."""
    return owner[: -len("-2026-11-24")] if owner and owner.startswith("eval-") else None
