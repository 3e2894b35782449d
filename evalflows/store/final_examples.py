"""Final examples are known by their inputs: under another label, id or dataset name they are final all the same.

Once the store has an example of the split `final`, a run refuses the same inputs under any other split. Inputs that
only resemble those of a final example are near copies: they are run, and named.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import chain
from typing import TYPE_CHECKING, Any

from evalflows.specs.attachments import without_contents
from evalflows.specs.errors import InputError
from evalflows.specs.frozen import dataclass
from evalflows.store.arrow import np
from evalflows.store.kept_checks import keep_check
from evalflows.store.records import FINAL, ExampleRow, derived_id, from_json, to_json
from evalflows.store.schemas import is_erased
from evalflows.store.store import Store

if TYPE_CHECKING:
    from evalflows.store.ingest import LoadedDataset
    from evalflows.store.snapshots import Examples

COPIES = "final_copies"
"""The name of the check that keeps the near copies of a snapshot."""

SIMILARITY = 0.9
"""Inputs resemble each other from this share of equal characters on (one minus the normalised Indel distance)."""
CLOSER = 4
"""How many times closer a near copy is to a final example than that typically is to the nearest other one: examples of
one template resemble each other anyway."""
COMPARED = 2_000
"""Characters of a text that are compared."""
MOST_PAIRS = 10_000_000
"""Pairs of texts that are compared; of more examples, a sample is."""
AT_ONCE = 1_000
"""Examples that are in memory at once."""
TYPICAL = 200
"""Final examples of which the distance to the nearest other one is measured."""
NAMED = 3
"""Examples that a message names."""

_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
_FINAL = f"""
select distinct example_id, inputs, attachments from source.examples where split = '{FINAL}' and snapshot_id in (
    select snapshot_id from source.snapshots where splits ->> '{FINAL}' is not null
)
"""

COPIES_KEPT = f"""
select arg_max(observed, recorded_at) from source.checks where name = '{COPIES}' and subject_id in (
    select snapshot_id from source.experiments where is_one_of(experiment_id, $1)
) group by subject_id order by subject_id
"""
"""SQL for the near copies of the snapshots of experiments, of each the newest; see `read_copies`."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of an example, as they are recognised."""

    example_id: str
    text: str  # normalised
    attachments: str  # their contents, whatever their names

    @property
    def key(self) -> bytes:
        """A hash by which they are known; of erased ones, of their id."""
        known = f"{self.text}\0{self.attachments}" if self.is_known else f"\0\0{self.example_id}"
        return hashlib.blake2b(known.encode(), digest_size=16).digest()

    @property
    def is_known(self) -> bool:
        """Whether they can be recognised, which erased ones cannot."""
        return bool(self.text or self.attachments)

    @classmethod
    def of(cls, example: ExampleRow) -> "Inputs":
        return cls.stored(example.example_id, example.inputs, example.attachments)

    @classmethod
    def stored(cls, example_id: str, inputs: str, attachments: str | None) -> "Inputs":
        text = "" if is_erased(inputs) else normalised(inputs)
        is_known = attachments is not None and not is_erased(attachments)
        content = "\n".join(_leaves(from_json(without_contents(attachments or "")))) if is_known else ""
        return cls(example_id, text, content)


@dataclass(frozen=True, slots=True)
class Copy:
    """An example whose inputs resemble those of a final one."""

    example_id: str
    final_id: str
    similarity: float


def normalised(inputs: str) -> str:
    """Return the texts of an example's inputs (JSON) without differences of case, blanks, Unicode form and names of
    fields."""
    text = "\n".join(_leaves(from_json(without_contents(inputs))))
    plain = _INVISIBLE.sub("", unicodedata.normalize("NFKC", text)).casefold()
    return " ".join(plain.split())


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name in sorted(value):
            yield from _leaves(value[name])
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    else:
        yield to_json(value) if not isinstance(value, str) else value


def final_inputs(store: Store, loaded: "LoadedDataset") -> list[Inputs]:
    """Return the inputs of all final examples of the store and of a dataset, each once.

    Those of erased ones cannot be recognised.
    """
    of_store = (Inputs.stored(*row) for row in store.query(_FINAL))
    has_own = loaded.has_final or loaded.n_left_out
    own = (Inputs.of(example) for example in loaded.examples if example.split == FINAL) if has_own else ()
    return [*{inputs.key: inputs for inputs in (*of_store, *own) if inputs.is_known}.values()]


def refuse_final(loaded: "LoadedDataset", final: Sequence[Inputs]) -> None:
    """Raise InputError if examples that are selected under another split have the inputs of final ones."""
    known = {inputs.key: inputs.example_id for inputs in final}
    others = map(Inputs.of, loaded.selected.rows(_others(loaded.selected))) if known else ()
    if same := [(inputs.example_id, known[inputs.key]) for inputs in others if inputs.key in known]:
        named = ", ".join(repr(own) if own == of else f"{own!r} (final as {of!r})" for own, of in same[:NAMED])
        count = f"{len(same)} example{'' if len(same) == 1 else 's'}"
        raise InputError(
            f"dataset {loaded.name or loaded.source!r}: got {count} with the inputs of final ones, such as {named}, "
            "wanted others: only a release gate runs these, whatever their split, id or name"
        )


def _others(examples: "Examples") -> list[int]:
    """Return the numbers of the examples that have another split, without reading their texts."""
    return [number for number, split in enumerate(examples.texts("split")) if split != FINAL]


def near_copies(examples: "Examples", final: Sequence[Inputs]) -> list[Copy]:
    """Return the examples whose inputs resemble those of a final one, each with the nearest."""
    final = [inputs for inputs in final if inputs.text]  # a picture's own text is not compared
    others = _others(examples) if final else []
    if not others:
        return []
    from rapidfuzz import process  # late: few stores have final examples
    from rapidfuzz.distance import Indel

    if len(others) * len(final) > MOST_PAIRS:
        others = sorted(np.random.default_rng(0).permutation(others)[: max(1, MOST_PAIRS // len(final))].tolist())
    of_final = [inputs.text[:COMPARED] for inputs in final]
    least = max(SIMILARITY, 1 - _typical_distance(of_final) / CLOSER)
    copies = []
    for start in range(0, len(others), AT_ONCE):
        block = [Inputs.of(example) for example in examples.rows(others[start : start + AT_ONCE])]
        texts = [inputs.text[:COMPARED] for inputs in block]
        similarities = process.cdist(texts, of_final, scorer=Indel.normalized_similarity, score_cutoff=least)
        nearest = similarities.argmax(axis=1)
        for index in np.flatnonzero(similarities.max(axis=1) >= least).tolist():
            like = final[int(nearest[index])].example_id
            copies.append(Copy(block[index].example_id, like, float(similarities[index].max())))
    return copies


def _typical_distance(texts: Sequence[str]) -> float:
    """Return the median distance of final examples to the nearest other one; 1.0 for a single one."""
    from rapidfuzz import process
    from rapidfuzz.distance import Indel

    if len(texts) < 2:
        return 1.0
    drawn = np.random.default_rng(0).permutation(len(texts))[:TYPICAL]
    similarities = process.cdist([texts[index] for index in drawn], texts, scorer=Indel.normalized_similarity)
    similarities[np.arange(len(drawn)), drawn] = 0.0
    return float(np.median(1 - similarities.max(axis=1)))


def keep_copies(store: Store, snapshot: str, copies: Sequence[Copy]) -> None:
    """Keep the near copies of a snapshot as a check on it, unless the same ones are kept."""
    found = [[copy.example_id, copy.final_id, round(copy.similarity, 3)] for copy in copies]
    batch = derived_id(COPIES, snapshot, to_json(found))
    if not copies or store.is_sealed("checks", batch):
        return
    keep_check(store, batch, COPIES, ("snapshot", snapshot), copies_text(copies), to_json(found), passed=False)


def read_copies(rows: Iterable[tuple[str]]) -> list[list[Copy]]:
    """Return the near copies of rows as COPIES_KEPT selects them, a list for each."""
    return [[Copy(*copy) for copy in from_json(observed)] for (observed,) in rows]


def copies_of(store: Store, final: Set[str]) -> list[Copy]:
    """Return the near copies of final examples, given by id, that have been run, each once."""
    kept = store.query("select observed::varchar from source.checks where name = ?", [COPIES]) if final else []
    copies = chain.from_iterable(read_copies(kept))
    return [*{copy.example_id: copy for copy in copies if copy.final_id in final}.values()]


def copies_text(copies: Sequence[Copy], *, with_ids: bool = True) -> str:
    """Say how many examples resemble final ones, and which."""
    named = ", ".join(f"{copy.example_id} like {copy.final_id}" for copy in copies[:NAMED])
    of_them = "1 example resembles a final one" if len(copies) == 1 else f"{len(copies)} examples resemble final ones"
    return f"{of_them}{f' ({named})' if with_ids else ''}: what is fitted to them is fitted to the final ones too"
