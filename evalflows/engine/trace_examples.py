"""Examples made of production items, with their secrets masked, for a dataset that may have examples already."""

import hashlib
import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from evalflows.engine.items import Item, Mapper, item_id, items_of, load_mapper, map_item
from evalflows.llm import loop
from evalflows.llm.wrapped import plain
from evalflows.specs.code_versions import fault_text
from evalflows.specs.dataset import TraceSelection
from evalflows.store.conversations import conversation_rows
from evalflows.store.queries.traces import ItemKey
from evalflows.store.records import ExampleRow, Json, to_json
from evalflows.store.store import Store
from evalflows.telemetry.masking import Masking, SecretPattern, patterns_with
from evalflows.telemetry.views import SessionView

AT_ONCE = 200
"""Items in memory at a time."""


Row = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class ExampleCounts:
    """What became of the selected items, and what was masked in the new examples."""

    added: int = 0
    known: int = 0  # in the dataset already
    duplicates: int = 0  # with the input of another one of this selection
    not_captured: int = 0  # the instrumentation left the content out
    failed: int = 0  # the mapper raised, or the conversation could not be divided
    unscored: int = 0  # without a score of the metric that orders them
    masked: Counter[str] = field(default_factory=Counter)
    first_failure: str | None = None


class TraceExamples:
    """The new examples of a selection, for a dataset that may have examples already."""

    def __init__(self, store: Store, selection: TraceSelection, known: Iterable[ExampleRow]) -> None:
        self._store, self._selection = store, selection
        self._mapper = _mapper(selection)
        self._patterns = patterns_with(selection.mask)
        self._known = {example.example_id: input_key(example.inputs) for example in known}
        self._known_inputs = {*self._known.values()}
        self.counts = ExampleCounts()

    def rows(self, keys: Sequence[ItemKey]) -> Iterator[Row]:
        """Yield the rows of the new examples, of items in this order, until the limit is reached."""
        seen: set[bytes] = set()
        for first in range(0, len(keys), AT_ONCE):
            for item in items_of(self._store, self._selection.scope, keys[first : first + AT_ONCE]):
                for row, masking in self._rows_of(item):
                    if self._selection.limit is not None and len(seen) >= self._selection.limit:
                        return
                    if self._is_new(row, seen):
                        self.counts.added += 1
                        self.counts.masked += masking.counts
                        yield row

    def _rows_of(self, item: Item) -> Iterator[tuple[Row, Masking]]:
        """Yield the rows of an item, each with its masking; count the item if it has none."""
        try:
            rows = list(self._mapped(item))
        except Exception as error:  # whatever the user's mapper raises
            self.counts.failed += 1
            self.counts.first_failure = self.counts.first_failure or f"{item_id(item)}: {fault_text(error)}"
            return
        if not rows:
            self.counts.not_captured += 1
        for row in rows:
            masking = Masking(self._patterns)
            yield _masked(row, masking, self._patterns), masking

    def _mapped(self, item: Item) -> Iterator[Row]:
        """Yield the rows of an item, secrets and all; none if its input was not captured."""
        example, output = loop.run(map_item(item, self._mapper))
        row: Row = {
            "id": example.example_id,
            "inputs": json.loads(example.inputs),
            "reference_outputs": json.loads(example.reference_outputs or "null"),
            "metadata": json.loads(example.metadata or "{}"),
            "cluster": example.cluster,
            "origin": _origin(item),
        }
        keeps = self._selection.keep_output_as_reference
        if isinstance(item, SessionView) and self._selection.mapper is None:
            if output:
                yield from _turns(row | {"inputs": output}, self._selection.turns or "whole", keeps=keeps)
        elif row["inputs"]:
            if keeps and row["reference_outputs"] is None and output is not None:
                row["reference_outputs"] = plain(output)
            yield row

    def _is_new(self, row: Row, seen: set[bytes]) -> bool:
        """Return whether no example has this input yet; count the row if one has."""
        key = input_key(to_json(row["inputs"], mend=True))
        is_repeated = key in seen
        seen.add(key)
        if key in self._known_inputs or row["id"] in self._known:
            self.counts.known += 1
            return False
        self.counts.duplicates += is_repeated
        return not is_repeated


def check_selection(selection: TraceSelection) -> None:
    """Raise InputError for a mapper that does not exist, or a path that cannot be read."""
    _mapper(selection)


def _mapper(selection: TraceSelection) -> Mapper:
    """Return the selection's mapper; by default the conversation of a session, or only the input and the output."""
    if selection.mapper is None:
        return load_mapper(None if selection.scope == "sessions" else {})
    return load_mapper(selection.mapper)


def input_key(inputs: Json) -> bytes:
    """Return a hash of inputs that is equal for those that differ only in case, spaces or forms of characters."""
    return hashlib.blake2b(to_json(_normalised(json.loads(inputs))).encode(), digest_size=16).digest()


def _normalised(value: Any) -> Any:
    if isinstance(value, str):
        return " ".join(unicodedata.normalize("NFKC", value).casefold().split())
    if isinstance(value, dict):
        return {name: _normalised(value[name]) for name in sorted(value)}
    return [_normalised(element) for element in value] if isinstance(value, list) else value


def _origin(item: Item) -> Row:
    """Return where an example comes from. The user's id is left out: it is personal, and says nothing of quality."""
    if isinstance(item, SessionView):
        source: Row = {"trace_ids": [trace.id for trace in item.traces]}
    else:
        source = {"trace_id": getattr(item, "trace_id", item.id)}
    return source | {"version": item.version, "started_at": item.started_at.isoformat()}


def _turns(row: Row, turns: Literal["whole", "next"], *, keeps: bool) -> Iterator[Row]:
    """Yield the examples of a conversation, with what the application said as the reference only if it is kept."""
    origin = row.pop("origin")
    for example in conversation_rows(row, turns):
        yield example | {"origin": origin} | ({} if keeps else {"reference_outputs": None})


def _masked(row: Row, masking: Masking, patterns: Sequence[SecretPattern]) -> Row:
    """Return a row without its secrets. An id with a secret becomes a hash of it, so that others stay apart from it."""
    return {
        "id": _safe_id(row["id"], patterns),
        "inputs": masking.value(row["inputs"]),
        "reference_outputs": masking.value(row["reference_outputs"]),
        "metadata": masking.value(row["metadata"]) | row["origin"],
        "cluster": _safe_id(row["cluster"], patterns),
    }


def _safe_id(identity: str | None, patterns: Sequence[SecretPattern]) -> str | None:
    if identity is None or Masking(patterns).text(identity) == identity:
        return identity
    return f"masked-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
