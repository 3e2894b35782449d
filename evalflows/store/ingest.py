"""Load the examples of a dataset spec."""

import hashlib
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from evalflows.specs.code_versions import fault_text
from evalflows.specs.columns import ExampleColumns, example_row
from evalflows.specs.dataset import DatasetSpec
from evalflows.specs.errors import InputError, NotFoundError, names_to_choose
from evalflows.specs.files import located
from evalflows.specs.frozen import dataclass
from evalflows.specs.reference import load
from evalflows.specs.values import stored_row
from evalflows.store.attachments import FilesBeside
from evalflows.store.conversations import conversation_rows
from evalflows.store.erasing import erased_error, erased_examples
from evalflows.store.file_formats import Numbered, filled_rows, read_rows, rows_in, stem
from evalflows.store.known_files import key_of, known_snapshot, note_snapshot
from evalflows.store.records import FINAL
from evalflows.store.snapshots import Examples, current_snapshot, freeze, load_snapshot, make_current, to_examples
from evalflows.store.stop import Stop
from evalflows.store.store import Store

_NAMES = """select name from source.dataset_versions
            group by name having arg_max(snapshot_id, recorded_at) <> '' order by name"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedDataset:
    """A dataset's examples, and those that the spec selects (by split and sample)."""

    name: str | None
    source: str
    examples: Examples
    selected: Examples
    has_final: bool = False  # whether final examples are among the selected ones
    n_left_out: int = 0  # final examples that are not, as only a release gate selects them
    n_drafts: int = 0  # drafts that are left out, as nobody has accepted them
    metadata: Mapping[str, Any] | None = None  # of the version
    key: str | None = None  # of the file that they are of

    def keep(self, store: Store) -> str:
        """Freeze all examples and the selected ones. Return the snapshot id of the selected ones.

        Raise InputError if some of these were erased.
        """
        identity = self.examples[0].snapshot_id
        if not identity:
            identity = freeze(store, self.examples, name=self.name, source=self.source, metadata=self.metadata)
        elif self.key is not None and self.name is not None:
            make_current(store, identity, name=self.name, source=self.source)
        if self.key is not None:
            note_snapshot(self.key, identity)
        if len(self.selected) == len(self.examples):
            return identity
        if erased := {*erased_examples(store, identity)} & {*self.selected.ids}:
            raise erased_error(self.name or identity, sorted(erased))
        return freeze(store, self.selected, name=None, source=self.source)


def load_dataset(store: Store, spec: DatasetSpec, *, final: bool = False) -> LoadedDataset:
    """Load the examples of a dataset spec, without freezing them; the final ones may be selected only if `final`.

    Raise InputError.
    """
    key = None if spec.path is None else key_of(spec)
    known = None if key is None else known_snapshot(store, key)
    files = FilesBeside(located(spec.path).parent if spec.path is not None else Path())
    examples = load_snapshot(store, known) if known else _examples(store, spec, files)
    name = spec.name or (stem(located(spec.path)) if spec.path is not None else None)
    source = spec.path or spec.function or "rows"
    selection = selected_examples(examples, spec, final=final)
    return LoadedDataset(
        name=name, source=source, examples=examples, key=None if files.were_read else key, **selection._asdict()
    )


def sent_examples(content: bytes, file: str, columns: ExampleColumns | None, stop: Stop) -> Examples:
    """Return the examples of a file that was sent.

    Raise InputError, with its name and the row, for a wrong one, and StoppedError once nobody waits for them.
    """
    return to_examples(_mapped(rows_in(content, file, stop), columns, None, file), file)


def find_snapshot(store: Store, reference: str) -> str:
    """Return the snapshot id for a dataset's name or a snapshot's id. Raise NotFoundError if it is neither."""
    if identity := current_snapshot(store, reference):
        return identity
    if store.query("select 1 from source.snapshots where snapshot_id = ?", [reference]):
        return reference
    known = [name for (name,) in store.query(_NAMES)]
    raise NotFoundError(f"dataset {reference!r}: not in the store, wanted {names_to_choose(reference, known)}")


def _examples(store: Store, spec: DatasetSpec, files: FilesBeside) -> Examples:
    if spec.path is not None:
        return to_examples(_mapped(read_rows(spec.path), spec.columns, spec.turns, spec.path), spec.path, files)
    if spec.function is not None:
        where = f"function {spec.function!r}, row"
        return to_examples(
            _mapped(filled_rows(_function_rows(spec.function), where), spec.columns, spec.turns, where), where, files
        )
    if spec.rows is not None:
        where = "dataset row"
        return to_examples(
            _mapped(filled_rows(enumerate(spec.rows, start=1), where), spec.columns, spec.turns, where), where, files
        )
    return load_snapshot(store, spec.snapshot or find_snapshot(store, spec.name or ""))


def _mapped(
    rows: Iterable[tuple[int, Mapping[str, Any]]],
    columns: ExampleColumns | None,
    turns: Literal["whole", "next"] | None,
    where: str,
) -> Numbered:
    for number, row in rows:
        try:
            named = dict(row) if columns is None else example_row(row, columns)
            examples = [named] if turns is None else conversation_rows(named, turns)
            yield from ((number, example) for example in examples)
        except InputError as error:
            raise InputError(f"{where}:{number}: {error}") from error


def _function_rows(function: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the rows that a function yields or returns."""
    rows = load(function)  # its errors name the function
    try:
        for number, row in enumerate(_iterable(rows()), start=1):
            if not isinstance(row, Mapping):
                raise InputError(f"row {number}: got {type(row).__name__}, wanted a mapping")
            yield number, stored_row(row, f"row {number}")
    except InputError as error:
        raise InputError(f"function {function!r}: {error}") from error
    except Exception as error:
        raise InputError(f"function {function!r}: {fault_text(error)}") from error


def _iterable(returned: Any) -> Iterable[Any]:
    if inspect.iscoroutine(returned):
        returned.close()
    if inspect.isawaitable(returned) or hasattr(returned, "__aiter__"):
        raise InputError("got an async function, wanted a sync function that yields rows")
    import pandas as pd  # late: only functions may return frames

    return returned.to_dict(orient="records") if isinstance(returned, pd.DataFrame) else returned


class Selection(NamedTuple):
    """The selected examples, and what became of final ones and drafts: the fields of `LoadedDataset`."""

    selected: Examples
    has_final: bool
    n_left_out: int
    n_drafts: int


def selected_examples(examples: Examples, spec: DatasetSpec, *, final: bool) -> Selection:
    """Return the sample of the examples in the wanted splits, in the dataset's order.

    By default these are the final examples if `final` and there are some, else all others; and no drafts. Raise
    InputError if a split has none, if all are drafts, or if the final ones are wanted but not `final`.
    """
    if not examples:
        raise InputError(f"dataset {spec.name or spec.snapshot!r}: has no examples yet, wanted at least one")
    splits = [*examples.texts("split")]
    places: Sequence[int] = range(len(examples)) if spec.splits is None else _of_splits(splits, spec.splits)
    drafts = frozenset(() if spec.drafts else examples.drafts())
    accepted = [index for index in places if index not in drafts] if drafts else places
    if not accepted:
        raise InputError(
            f"dataset {spec.name or spec.snapshot or spec.path!r}: got only drafts ({len(places)}), wanted "
            "accepted examples (the page Review), or `drafts: true` to try them"
        )
    n_drafts, places, n_left_out = len(places) - len(accepted), accepted, 0
    if n_final := sum(splits[index] == FINAL for index in places):
        if not final and (spec.splits is not None or n_final == len(places)):
            raise InputError(
                f"dataset {spec.name or spec.snapshot or spec.path!r}: got {n_final} examples of the split {FINAL}, "
                "wanted others: only a release gate runs these"
            )
        if spec.splits is None:
            places = [index for index in places if (splits[index] == FINAL) == final]
            n_left_out = 0 if final else n_final
    if spec.sample is not None and spec.sample < len(places):
        lots = [lot(examples.ids[index], spec.seed) for index in places]
        drawn = sorted(range(len(lots)), key=lots.__getitem__)[: spec.sample]
        places = [places[number] for number in sorted(drawn)]
    selected = examples if len(places) == len(examples) else examples.select(places)
    return Selection(selected, any(splits[index] == FINAL for index in places), n_left_out, n_drafts)


def _of_splits(splits: Sequence[str | None], wanted: Sequence[str]) -> list[int]:
    """Return the places of the examples of these splits. Raise InputError if there are none."""
    places = [index for index, split in enumerate(splits) if split in wanted]
    if not places:
        known = sorted({split for split in splits if split is not None})
        expected = f"some of {known}" if known else "no splits, as the dataset has none"
        raise InputError(f"dataset: splits: got {wanted}, wanted {expected}")
    return places


def lot(identity: str, seed: int) -> bytes:
    """Return a sort key that depends only on the seed and the id, so that new ones hardly change the sample."""
    return hashlib.sha256(f"{seed}:{identity}".encode()).digest()
