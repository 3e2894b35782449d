"""Find failure modes: group what was noted about failures, and propose modes that a taxonomy does not have yet.
Groups of texts are named by the terms that tell a group from the others."""

import asyncio
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from evalflows.analysis.note_templates import Compared, Templates
from evalflows.engine.prepare import with_shared
from evalflows.engine.secret_blocks import key_for
from evalflows.evaluators.judging import ask
from evalflows.evaluators.modes import MAX_SENTENCE, task_text
from evalflows.evaluators.prompt_texts import numbered, prompt_texts, shipped
from evalflows.evaluators.scales import verdict_schema
from evalflows.llm import local, loop
from evalflows.llm.budget import Budget
from evalflows.llm.connect import completer, embedder
from evalflows.llm.connections import resolve
from evalflows.llm.ledger import Ledger, Recorder, recording
from evalflows.specs.connections import LocalConnection
from evalflows.specs.errors import InputError
from evalflows.specs.escaping import one_line
from evalflows.specs.failure_modes import TAKEN, Kind, ModeSpec, TaxonomySpec
from evalflows.specs.frozen import dataclass
from evalflows.specs.protocols import Complete, Embed
from evalflows.stats.arrays import FloatArray
from evalflows.stats.groups import IntArray, by_size, groups, middle, plane
from evalflows.stats.unseen import Unseen, unseen
from evalflows.store.queries.failures import AnswerTexts, Failure, texts_of
from evalflows.store.records import from_json, new_id
from evalflows.store.spool import Spool
from evalflows.store.store import Store

SIMILARITY = 0.45
"""Least mean similarity of the pairs of two groups that are one mode. With the local model, sentences about the same
thing are at .5 to .7, others at .1 to .3."""
MIN_FAILURES = 3
"""Fewest failures of a mode that is proposed."""
MAX_FAILURES = 100_000
N_EXAMPLES = 5
"""Texts that a proposed mode has as examples."""
N_SHOWN = 10
"""Sentences from the middle of a group, and from its edge, that a model names it by."""
COVERED = 0.9
"""Cosine of the middles of a group and of a mode's examples from which the mode covers the group."""
EMBEDDED_AT_ONCE = 64
MAX_READ = 4 * MAX_SENTENCE
"""Characters of a note in which what differs between notes is looked for."""
USUAL = 0.05
"""Least share of the failures whose notes name a tool, or have a value, for it to stay."""

_CALL = re.compile(r"([\w.-]+)\(\{.*?(?:\}\)|…)")

SAID_OF = 0.3
"""Least share of a group's sentences that have a term of its name."""

_TERM = re.compile(r"[^\W\d_]{3,}")


class Terms:
    """Which texts have which terms."""

    def __init__(self, sentences: Sequence[str]) -> None:
        self._of = [frozenset(_TERM.findall(sentence.lower())) for sentence in sentences]
        self._counts = Counter(term for terms in self._of for term in terms)

    def name(self, places: Iterable[int]) -> str:
        """Return the one or two terms that most tell the sentences at some places from the others, joined by _."""
        of_group = [self._of[index] for index in places]
        counts, n, rest = Counter(term for terms in of_group for term in terms), len(of_group), len(self._of)

        def weight(term: str) -> float:
            """Return the term's share within the group times the logarithm of its ratio to the share outside."""
            within, outside = counts[term] / n, (self._counts[term] - counts[term] + 1) / (rest - n + 2)
            return float(within * np.log(within / outside))

        usual = sorted((term for term in counts if counts[term] >= SAID_OF * n), key=lambda term: (-weight(term), term))
        telling = [term for term in usual if weight(term) > 0]
        telling = telling[:1] + [term for term in telling[1:2] if counts[term] >= n / 2]
        return "_".join(telling or usual[:1]) or "unnamed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Failures that are alike."""

    name: str
    definition: str
    sentences: Sequence[str]  # the most typical first
    failures: Sequence[str]  # ids of runs or traces, in the same order

    @property
    def mode(self) -> ModeSpec:
        """The mode that is proposed. Its examples are the most typical sentences that differ."""
        return ModeSpec(
            name=self.name, definition=self.definition, examples=[*dict.fromkeys(self.sentences)][:N_EXAMPLES]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was found among failures."""

    kind: Kind
    n_failures: int  # of topics: tasks
    n_without_note: int  # failures about which nothing was noted, which are in no group
    n_nothing: int  # of these, those in which a model found nothing wrong
    proposed: Sequence[Group]  # the largest first
    covered: Mapping[str, int]  # failures in groups that a mode of the taxonomy covers, by mode
    rare: Sequence[Group]  # groups too small to be proposed
    n_alone: int  # failures that are like no other
    unseen: Unseen
    calls: int  # paid model calls
    by_meaning: bool  # False: by the templates of the notes alone, since the local embedding model is not installed


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The model that names groups: its connection, and the most calls that may be paid. It `describes` failures without
    a note, or tasks, if that is asked for."""

    connection: str
    name: str | None = None
    max_calls: int = 100
    describes: bool = False


def find_modes(
    store: Store,
    failures: Sequence[Failure],
    taxonomy: TaxonomySpec | None,
    *,
    embeddings: str = "local",
    model: Model | None = None,
    similarity: float = SIMILARITY,
    kind: Kind = "modes",
) -> Found:
    """Group failures by what was noted about them, and propose a mode for each group that no mode covers; or, of kind
    `topic`, group tasks by their texts.

    Without the local embedding model, notes of one template are a group. Without a model, a group is named by the terms
    that tell it from the others. The same failures give the same result, whatever their order; a model is asked about
    groups that are proposed only, and its answers come from the ledger.

    Raise InputError without failures, for more than MAX_FAILURES, for a taxonomy of another kind, for more to describe
    than calls may be paid, and for a connection that cannot be used. Raise CallError for a call that failed.
    """
    if not failures or len(failures) > MAX_FAILURES:
        what = "tasks" if kind == "topic" else "failures"
        hint = "--topics" if kind == "topic" else "--failed METRIC says which scores are bad"
        raise InputError(f"got {len(failures) or 'no'} {what}, wanted 1 to {MAX_FAILURES:,} ({hint})")
    if taxonomy is not None and taxonomy.kind != kind:
        raise InputError(f"the taxonomy: got kind {taxonomy.kind}, wanted {kind}, or another file")
    describes = model is not None and model.describes
    told = _noted(failures)
    to_read = to_describe(failures, kind) if describes or kind == "topic" else []
    if describes and model is not None and len(to_read) > model.max_calls:
        raise InputError(f"{len(to_read)} to describe, got at most {model.max_calls} calls, wanted at least as many")
    texts = texts_of(store, to_read)
    if kind == "topic" and not describes:
        told = {text.id: sentence for text in texts if (sentence := task_text(_fields(text.inputs)))}
    budget, owner = Budget(calls=model.max_calls if model else None), new_id("trial")
    names = {embeddings, *([model.connection] if model else [])}
    connections = with_shared({}, names)
    ledger = Ledger(store, owner)

    def connected(name: str) -> Any:
        connection = resolve(name, connections)
        return {"name": name, "connection": connection, "ledger": ledger, "key": key_for(name, connection)}

    is_local = isinstance(resolve(embeddings, connections), LocalConnection)
    by_templates = kind == "modes" and is_local and not local.is_installed()
    embed = None if by_templates else embedder(**connected(embeddings), budget=budget)
    complete = completer(**connected(model.connection), model=model.name, budget=budget) if model else None
    with Spool(store, owner, "modes") as spool:
        recorder = Recorder(
            keep=spool.add_call,
            note=spool.note_sent,
            check=spool.check,
            experiment_id=owner,
            subject_id=owner,
            evaluator="modes",
            budget=budget,
        )
        with recording(recorder):
            if describes and complete is not None:
                said = loop.run(_described(texts, kind, complete))
                told |= _noted([Failure(id=identity, notes=[sentence]) for identity, sentence in said.items()])
            found = loop.run(_found(sorted(told.items()), taxonomy, kind, embed, complete, similarity))
    store.seal(owner, ["calls"])
    return replace(
        found,
        n_failures=len(failures),
        n_without_note=len(failures) - len(told),
        n_nothing=len(texts) - len(said) if describes else 0,
        calls=budget.spent_calls,
    )


def to_describe(failures: Sequence[Failure], kind: Kind) -> list[str]:
    """Return the ids of what a model would describe, in a call each: failures without a note, or all tasks."""
    noted = {} if kind == "topic" else _noted(failures)
    return [failure.id for failure in failures if failure.id not in noted]


def map_of(sentences: Sequence[str]) -> FloatArray:
    """Return a place in the plane for each sentence, near those that are alike in meaning by the local embedding model,
    shape (n, 2). Raise InputError if the model is not installed."""
    unique = list(dict.fromkeys(sentences))
    found = np.asarray(local.embed(unique), dtype=np.float64).reshape(len(unique), -1)
    number = {sentence: index for index, sentence in enumerate(unique)}
    return plane(found[[number[sentence] for sentence in sentences]])


def _noted(failures: Sequence[Failure]) -> dict[str, str]:
    """Return what was noted about each failure by its id, on one line. Of calls, the arguments are left out, and names
    that few failures have: these tell what a task is about, and not what went wrong."""
    lines = {failure.id: line for failure in failures if (line := one_line("; ".join(failure.notes)).strip())}
    names = Counter(name for line in lines.values() for name in {*_CALL.findall(line)})

    def shortened(call: re.Match[str]) -> str:
        return f"{call[1]}(…)" if names[call[1]] >= _usual(len(lines)) else "(call)"

    return {identity: _CALL.sub(shortened, line)[:MAX_READ] for identity, line in lines.items()}


def _usual(n: int) -> float:
    return max(USUAL * n, MIN_FAILURES)


async def _found(
    noted: Sequence[tuple[str, str]],
    taxonomy: TaxonomySpec | None,
    kind: Kind,
    embed: Embed | None,
    complete: Complete | None,
    similarity: float,
) -> Found:
    sentences = [note[:MAX_SENTENCE] for _, note in noted]
    templates = Templates([note for _, note in noted] if kind == "modes" else [], _usual(len(noted)))
    without = {note: templates.compared(note) for note in {note for _, note in noted}}
    compared = [without[note] for _, note in noted]
    texts = [text[:MAX_SENTENCE] for text, _ in compared]
    vectors = await embedded(texts, embed)
    joined = np.unique(texts, return_inverse=True)[1] if embed is None else groups(vectors, similarity)
    joined = _with_variants(joined, compared)
    sizes = np.bincount(joined[joined >= 0]) if (joined >= 0).any() else np.zeros(0, dtype=int)
    covering = await _covering(texts, vectors, joined, taxonomy, templates, embed)
    spoken = Terms(texts)
    proposed: list[Group] = []
    rare: list[Group] = []
    taken = {*TAKEN, *(taxonomy.names if taxonomy else ())}
    for number, size in enumerate(sizes):
        if number in covering:
            continue
        places = np.flatnonzero(joined == number)
        near = places[np.argsort(-(vectors[places] @ middle(vectors[places])), kind="stable")].tolist()
        said = [sentences[index] for index in near]
        what = "task" if kind == "topic" else "failure"
        name, definition = spoken.name(places), f"The {what} is like this one: {texts[near[0]]}"
        if size >= MIN_FAILURES and complete is not None:
            name, definition = await _named(said, kind, complete)
        name = unique(name, taken)
        taken.add(name)
        group = Group(name=name, definition=definition, sentences=said, failures=[noted[index][0] for index in near])
        (proposed if size >= MIN_FAILURES else rare).append(group)
    covered = Counter(dict.fromkeys(covering.values(), 0))
    for number, mode in covering.items():
        covered[mode] += int(sizes[number])
    alone = int((joined < 0).sum())
    return Found(
        kind=kind,
        n_failures=0,
        n_without_note=0,
        n_nothing=0,
        proposed=proposed,
        covered=covered,
        rare=rare,
        n_alone=alone,
        unseen=unseen([*map(int, sizes), *[1] * alone]),
        calls=0,
        by_meaning=embed is not None,
    )


def _with_variants(joined: IntArray, compared: Sequence[Compared]) -> IntArray:
    """Return the group of each note, where those of one template with other usual values are groups of their own."""
    usual = _usual(len(compared))
    counts = Counter(note.text for note in compared if note.is_variant)
    numbers = {text: len(compared) + index for index, text in enumerate(counts) if counts[text] >= usual}
    found = np.array([numbers.get(note.text, of) for note, of in zip(compared, joined, strict=True)], dtype=np.intp)
    names, sizes = np.unique(found, return_counts=True)
    found[np.isin(found, names[sizes == 1])] = -1
    return by_size(found)


async def embedded(sentences: Sequence[str], embed: Embed | None) -> FloatArray:
    """Return a vector of length 1 for each sentence, shape (n, d); zeros, which are near nothing, if none can be made.
    Equal sentences are embedded once."""
    unique = sorted({*sentences})
    parts = [unique[first : first + EMBEDDED_AT_ONCE] for first in range(0, len(unique), EMBEDDED_AT_ONCE)]
    if embed is None or not parts:
        return np.zeros((len(sentences), 1))
    limit = asyncio.Semaphore(16)

    async def of(chunk: list[str]) -> FloatArray:
        async with limit:
            return np.asarray(await embed(chunk), dtype=np.float64)

    found = np.concatenate(await asyncio.gather(*map(of, parts)))
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    index_of = {sentence: number for number, sentence in enumerate(unique)}
    return np.asarray(found[[index_of[sentence] for sentence in sentences]])


async def _covering(
    texts: Sequence[str],
    vectors: FloatArray,
    joined: IntArray,
    taxonomy: TaxonomySpec | None,
    templates: Templates,
    embed: Embed | None,
) -> dict[int, str]:
    """Return the mode that covers a group, by the group's number: one of its texts is that of an example of the mode,
    or their middles are near."""
    covering: dict[int, str] = {}
    for mode in taxonomy.modes if taxonomy else ():
        examples = {templates.compared(one_line(text)).text[:MAX_SENTENCE] for text in mode.examples}
        own = middle(await embedded([mode.definition, *sorted(examples)], embed))
        for number in range(int(joined.max(initial=-1)) + 1):
            places = np.flatnonzero(joined == number).tolist()
            has_example = any(texts[index] in examples for index in places)
            if has_example or float(own @ middle(vectors[places])) >= COVERED:
                covering.setdefault(number, mode.name)
    return covering


async def _described(texts: Sequence[AnswerTexts], kind: Kind, complete: Complete) -> dict[str, str]:
    """Return a model's sentence about each answer or task, by its id; none about one in which it finds nothing."""
    fields = {"is_found": {"type": "boolean"}, "sentence": {"type": "string"}}

    async def of(item: AnswerTexts) -> tuple[str, str | None]:
        inputs, reference_outputs, outputs = map(_fields, (item.inputs, item.reference_outputs, item.outputs))
        reply = await ask(
            complete,
            shipped("describe_task" if kind == "topic" else "describe_failure"),
            prompt_texts(inputs, outputs, reference_outputs),
            verdict_schema("described", fields),
            needed=("inputs",),
            temperature=0.0,
        )
        return item.id, reply.verdict["sentence"] if reply.verdict["is_found"] else None

    found = await asyncio.gather(*map(of, texts), return_exceptions=True)  # wait for all: each is paid
    if failed := next((outcome for outcome in found if isinstance(outcome, BaseException)), None):
        raise failed
    told = dict(outcome for outcome in found if not isinstance(outcome, BaseException))
    return {identity: sentence for identity, sentence in told.items() if sentence is not None}


def _fields(content: str | None) -> dict[str, Any]:
    """Return the fields of JSON; of a trace, another value is the only field."""
    value = None if content is None else from_json(content)
    return value if isinstance(value, dict) else {} if value is None else {"text": value}


async def _named(sentences: Sequence[str], kind: Kind, complete: Complete) -> tuple[str, str]:
    """Return a model's name and definition of a group."""
    edge = sentences[N_SHOWN:][-N_SHOWN:]
    reply = await ask(
        complete,
        shipped("name_topic" if kind == "topic" else "name_mode"),
        {"nearest": numbered("Failure", sentences[:N_SHOWN]), "edge": numbered("Failure", edge)},
        verdict_schema("failure_mode", {"name": {"type": "string"}, "definition": {"type": "string", "minLength": 1}}),
        needed=("nearest",),
        temperature=0.0,
    )
    return reply.verdict["name"], one_line(reply.verdict["definition"])


def unique(name: str, taken: set[str]) -> str:
    """Return a name as a taxonomy may have it, with a number if it is taken."""
    clean = re.sub(r"\W+", "_", name.strip().lower()).strip("_")[:50] or "unnamed"
    numbers = (f"{clean}_{number}" for number in range(2, len(taken) + 3))
    return clean if clean not in taken else next(numbered for numbered in numbers if numbered not in taken)
