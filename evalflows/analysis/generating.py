"""Draft examples that a model writes: from passages of documents, or like some examples. A person accepts them later.

Only `generate` calls models.
"""

import asyncio
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from evalflows.analysis.modes import embedded
from evalflows.engine.passages import Passage, read_passages
from evalflows.engine.play import recorded_trial, take_up_trials
from evalflows.engine.secret_blocks import key_for
from evalflows.evaluators.judging import prompt_hash
from evalflows.evaluators.prompt_texts import NONE, numbered, shipped
from evalflows.evaluators.scales import verdict_schema
from evalflows.llm import local, loop
from evalflows.llm.budget import Budget
from evalflows.llm.calls import Completer
from evalflows.llm.connect import completer, embedder
from evalflows.llm.connections import known, resolve
from evalflows.llm.ledger import Ledger
from evalflows.llm.local import LOCAL_MODEL
from evalflows.llm.prices import LONG_ANSWER, Price, Tokens, price_of, tokens_of_text
from evalflows.specs.columns import ExampleColumns
from evalflows.specs.connections import ConnectionSpec, LocalConnection
from evalflows.specs.dataset import DatasetSpec
from evalflows.specs.errors import REFUSED_BY_BUDGET, CallError, IncompleteError, InputError
from evalflows.specs.frozen import dataclass
from evalflows.specs.placeholders import fill
from evalflows.specs.protocols import Completion, Embed
from evalflows.store.file_formats import READERS, suffix
from evalflows.store.final_examples import normalised
from evalflows.store.ingest import load_dataset
from evalflows.store.queries.past_calls import in_ledger
from evalflows.store.records import ExampleRow, from_json, new_id, to_json
from evalflows.store.schemas import is_erased
from evalflows.store.store import Store

Kind = Literal["simple", "several", "unanswerable", "adversarial"]
KINDS: tuple[Kind, ...] = get_args(Kind)

UNANSWERABLE = "This cannot be answered from the documents."
"""The reference of questions of this kind."""

SHOWN = 4
"""Examples that a prompt has."""
SIMILARITY = 0.9
"""Cosine of two questions from which they are near duplicates. With the local model, the same question in other words
is at .92 to .97, one with another name in it up to .88."""
OVERLAP = 0.8
"""The same without embeddings: the share of their words that both have."""

_WORD = re.compile(r"\w+")
_GIVE = (
    'Give "question"; "answer", short and complete; and "quotes": sentences copied word for word from the passages, '
)
_TEXTS: Mapping[Kind, str] = {
    "simple": f"The passage must answer the question. {_GIVE}from which the answer follows.",
    "several": f"The question must need two passages: one alone does not answer it. {_GIVE}at least one from each.",
    "unanswerable": "The question must be one that a user could expect these documents to answer, and that the passage "
    'does not answer. Give "question", and as "why" what is missing, in one sentence.',
    "adversarial": "The question must rest on something false, as a user who is mistaken or insists would ask: a wrong "
    "premise, or a claim to confirm that the passage contradicts. The answer says what is false and what is right. "
    f"{_GIVE}which show that it is false.",
}
_TEXT = {"type": "string"}
_GROUNDED = {"question": _TEXT, "answer": _TEXT, "quotes": {"type": "array", "items": _TEXT}}
_TYPES = {str: "string", bool: "boolean", int: "number", float: "number"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a model is asked for in one call."""

    prompt: str  # filled
    version: str  # of the prompt and what it asks for
    schema: dict[str, Any]
    repeat: int  # how often the same is asked before
    kind: str
    passages: Sequence[Passage] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """The calls that drafts take, before any is made."""

    name: str  # of the connection
    connection: ConnectionSpec
    model: str
    tasks: Sequence[Task]
    paid: Sequence[Task]  # those of which the ledger has no answer
    examples: Sequence[str]  # the inputs of examples that drafts are to be like, as JSON
    price: Price | None
    budget_usd: float | None

    @property
    def usd(self) -> float | None:
        """What the paid ones cost if no answer is longer than LONG_ANSWER tokens; None if the price is not known."""
        tokens = (
            Tokens(tokens_of_text(task.prompt) + tokens_of_text(to_json(task.schema)), None, LONG_ANSWER)
            for task in self.paid
        )
        return None if self.price is None else sum(self.price.cost(of) or 0.0 for of in tokens)


@dataclass(slots=True, kw_only=True)
class DraftCounts:
    """What became of the calls."""

    drafts: int = 0
    known: int = 0  # in the dataset already, or rejected from it
    duplicates: int = 0  # near another one, or near an example beside
    ungrounded: int = 0  # rest on no passage, or on fewer than their kind needs
    failed: int = 0
    first_failure: str | None = None
    not_asked: int = 0  # as the budget was spent
    by_meaning: bool = True  # whether near duplicates were told by embeddings
    calls: int = 0  # paid
    usd: float | None = None  # paid; None if unknown
    by_kind: Counter[str] = field(default_factory=Counter)


def planned(
    store: Store,
    sources: Sequence[str],
    connection: str,
    *,
    n: int,
    kinds: Sequence[str] = (),
    columns: ExampleColumns | None = None,
    model: str | None = None,
    seed: int = 0,
    budget_usd: float | None = None,
) -> Generation:
    """Return the calls that `n` drafts take. `sources` are documents, folders of them, and datasets' files of examples.

    Which passages are asked about follows from the seed; without `kinds`, each kind is asked that the documents allow.
    `columns` are those of files of examples. Raise InputError for sources that have nothing to write from,
    kinds that there are not, and a connection that cannot be used.
    """
    if n < 1:
        raise InputError(f"n: got {n}, wanted a whole number above 0")
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise InputError(f"kinds: got {unknown[0]!r}, wanted some of {', '.join(KINDS)}")
    resolved = resolve(connection, {})
    asked = model or resolved.model or (LOCAL_MODEL if isinstance(resolved, LocalConnection) else None)
    if asked is None:
        raise InputError(f"connection {connection!r}: got no model, wanted --model")
    if resolved.answer_form == "text":
        raise InputError(f"connection {connection!r}: got answer_form text, wanted json_schema or tool_call")
    price = price_of(resolved, asked)
    if budget_usd is not None and price is None:
        raise InputError(
            f"budget: got {budget_usd:g} USD, but the price of {asked} is unknown, wanted it in {connection!r}"
        )
    files = [source for source in sources if suffix(Path(source)) in READERS]
    examples = [row for file in files for row in load_dataset(store, DatasetSpec(path=file, columns=columns)).selected]
    documents = [source for source in sources if source not in files]
    tasks = _about(read_passages(documents), examples, n, kinds, seed) if documents else _like(examples, n, seed)
    keys = _call_keys(connection, resolved, asked, tasks)
    answered = in_ledger(store, keys)
    return Generation(
        name=connection,
        connection=resolved,
        model=asked,
        tasks=tasks,
        paid=[task for task, key in zip(tasks, keys, strict=True) if key not in answered],
        examples=[row.inputs for row in examples],
        price=price,
        budget_usd=budget_usd,
    )


def _call_keys(name: str, connection: ConnectionSpec, model: str, tasks: Sequence[Task]) -> list[str]:
    """Return the key of each call in the ledger; none is made."""
    from evalflows.analysis.plan import RequestRecordedError, RequestRecorder  # late: it loads the judges

    recorder = RequestRecorder(name, connection)
    complete = Completer(recorder, model)

    async def ask() -> None:
        for task in tasks:
            with suppress(RequestRecordedError):
                await complete(task.prompt, schema=task.schema, repeat=task.repeat)

    loop.run(ask())
    return [request.key for request in recorder.requests]


def _about(
    passages: Sequence[Passage], examples: Sequence[ExampleRow], n: int, kinds: Sequence[str], seed: int
) -> list[Task]:
    """Return tasks about passages in random order, each kind in turn; after all were used, in another order."""
    kinds = kinds or [kind for kind in KINDS if kind != "several" or len(passages) > 1]
    if "several" in kinds and len(passages) < 2:
        raise InputError(f"kinds: got several, and {passages[0].source} is one passage, wanted at least two")
    shown = random.Random(seed).sample(examples, min(SHOWN, len(examples)))
    asked = numbered("Question", (from_json(row.inputs) for row in shown)) if shown else NONE
    tasks, repeats, order = list[Task](), Counter[tuple[str, str]](), list[int]()
    for number in range(n):
        if not order:
            order = random.Random(f"{seed}:{number}").sample(range(len(passages)), len(passages))
        kind, place = kinds[number % len(kinds)], order.pop()
        about = [passages[place], *([_beside(passages, place)] if kind == "several" else [])]
        fields = {"question": _TEXT, "why": _TEXT} if kind == "unanswerable" else _GROUNDED
        schema, prompt = verdict_schema("draft", fields), shipped("draft_question")
        texts = {
            "passages": numbered("Passage", (passage.text for passage in about)),
            "kind": _TEXTS[kind],  # type: ignore[index]  # checked before
            "examples": asked,
        }
        tasks.append(
            Task(
                prompt=fill(prompt, texts),
                version=prompt_hash(prompt, texts["kind"], schema),
                schema=schema,
                repeat=repeats[kind, about[0].id],
                kind=kind,
                passages=about,
            )
        )
        repeats[kind, about[0].id] += 1
    return tasks


def _beside(passages: Sequence[Passage], place: int) -> Passage:
    """Return the next passage, of the same document if that has another: neighbours are about one thing."""
    after, before = (place + 1) % len(passages), place - 1
    is_last = passages[after].source != passages[place].source
    return passages[before if is_last and passages[before].source == passages[place].source else after]


def _like(examples: Sequence[ExampleRow], n: int, seed: int) -> list[Task]:
    """Return tasks to write more examples with the fields of some, of which each prompt shows others."""
    cases = [
        {"inputs": from_json(row.inputs), "reference_outputs": from_json(row.reference_outputs or "{}")}
        for row in examples
    ]
    parts = {name: _fields(name, [case[name] for case in cases]) for name in ("inputs", "reference_outputs")}
    if not parts["inputs"]:
        raise InputError("examples: got no field that all of their inputs have, wanted one")
    schema = verdict_schema("draft", {name: verdict_schema(name, fields) for name, fields in parts.items() if fields})
    prompt, draw, tasks, repeats = shipped("draft_like"), random.Random(seed), list[Task](), Counter[str]()
    for _ in range(n):
        filled = fill(prompt, {"examples": numbered("Case", draw.sample(cases, min(SHOWN, len(cases))))})
        version = prompt_hash(prompt, schema)
        tasks.append(Task(prompt=filled, version=version, schema=schema, repeat=repeats[filled], kind="like"))
        repeats[filled] += 1
    return tasks


def _fields(name: str, given: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the schema of the fields that all have. Raise InputError for values that a model is not asked for."""
    fields: dict[str, Any] = {}
    for field_name in [*given[0]]:
        kinds = {type(values.get(field_name)) for values in given} - {type(None)}
        if unknown := kinds - _TYPES.keys():
            got = f"{name}.{field_name}: got {unknown.pop().__name__}"
            raise InputError(f"{got}, wanted examples whose fields are texts, numbers or yes/no")
        if kinds and all(field_name in values for values in given):
            fields[field_name] = {"type": next(_TYPES[kind] for kind in _TYPES if kind in kinds)}
    return fields


def generate(
    store: Store, generation: Generation, dataset: str | None = None, besides: Sequence[str] = ()
) -> tuple[list[dict[str, Any]], DraftCounts]:
    """Return the rows of the drafts and what became of the calls, which are paid once: the ledger keeps them.

    Left out are those that `dataset` has or had in an earlier version, and near duplicates of these, of the examples,
    of the inputs `besides`, and of each other. Raise IncompleteError if no call was answered.
    """
    take_up_trials(store)
    trial, budget, counts = new_id("trial"), Budget(usd=generation.budget_usd), DraftCounts()
    ledger, name, connection = Ledger(store, trial), generation.name, generation.connection
    key = key_for(name, connection)
    complete = completer(name, connection, ledger, key=key, model=generation.model, budget=budget)
    embed: Embed | None = None
    if not isinstance(connection, LocalConnection) and connection.embedding_model:
        embed = embedder(name, connection, ledger, key=key, budget=budget)
    elif local.is_installed():
        embed = embedder("local", LocalConnection(), ledger, budget=budget)
    counts.by_meaning = embed is not None

    async def asked() -> list[dict[str, Any]]:
        calls = (complete(task.prompt, schema=task.schema, repeat=task.repeat) for task in generation.tasks)
        found = await asyncio.gather(*calls, return_exceptions=True)  # wait for all: each is paid
        rows, why = list[dict[str, Any]](), None
        for task, answer in zip(generation.tasks, found, strict=True):
            if isinstance(answer, CallError):
                why = why or str(answer)
                if answer.kind in REFUSED_BY_BUDGET:
                    counts.not_asked += 1
                else:
                    counts.failed += 1
                    counts.first_failure = counts.first_failure or str(answer)
            elif isinstance(answer, BaseException):
                raise answer
            elif (row := _row(task, answer)) is None:
                counts.ungrounded += 1
            else:
                rows.append(row)
        if why is not None and not rows and not counts.ungrounded:
            raise IncompleteError(f"connection {name!r}: no draft was written: {why}")
        return await _distinct(rows, _earlier(store, dataset), [*generation.examples, *besides], embed, counts)

    with recorded_trial(store, trial, ledger, budget, [*known({}).values()]):
        rows = loop.run(asked())
    counts.drafts, counts.calls = len(rows), budget.spent_calls
    counts.usd = None if budget.unknown else budget.spent_usd
    counts.by_kind.update(row["metadata"]["kind"] for row in rows)
    return rows, counts


def _row(task: Task, answer: Completion) -> dict[str, Any] | None:
    """Return the row of a draft; None if it does not rest on as many passages as its kind needs."""
    said = answer.parsed
    metadata = {"draft": True, "kind": task.kind, "generated_by": answer.model, "prompt": task.version}
    if not task.passages:
        return {"inputs": said["inputs"], "reference_outputs": said.get("reference_outputs"), "metadata": metadata}
    metadata |= {"sources": [*dict.fromkeys(passage.source for passage in task.passages)]}
    metadata |= {"passages": [passage.id for passage in task.passages]}
    row = {"inputs": {"question": said["question"]}, "metadata": metadata, "cluster": task.passages[0].id}
    if task.kind == "unanswerable":
        near = [{"id": passage.id, "text": passage.text} for passage in task.passages]
        metadata |= {"why": said["why"], "near": near}
        return row | {"reference_outputs": {"answer": UNANSWERABLE, "contexts": []}}
    contexts = [
        {"id": passage.id, "text": passage.text, "quote": quote}
        for passage in task.passages
        if (quote := max(filter(None, map(passage.quoted, said["quotes"])), key=len, default=None))
    ]
    if len(contexts) < len(task.passages) or not said["question"].strip() or not said["answer"].strip():
        return None
    return row | {"reference_outputs": {"answer": said["answer"], "contexts": contexts}}


def _earlier(store: Store, dataset: str | None) -> list[str]:
    """Return the inputs of all versions of a dataset, so that what was rejected does not come back."""
    query = """select distinct inputs::varchar from source.examples where snapshot_id in (
                   select snapshot_id from source.dataset_versions where name = ?)"""
    rows = store.query(query, [dataset]) if dataset is not None else []
    return [inputs for (inputs,) in rows if not is_erased(inputs)]


async def _distinct(
    rows: Sequence[dict[str, Any]],
    earlier: Sequence[str],
    besides: Sequence[str],
    embed: Embed | None,
    counts: DraftCounts,
) -> list[dict[str, Any]]:
    """Return the rows that resemble none before them, and none that is there already; count the others."""
    there = dict.fromkeys(map(normalised, earlier))
    texts = [*dict.fromkeys([*there, *map(normalised, besides)])]
    places, kept = [*range(len(texts))], list[dict[str, Any]]()
    texts += [normalised(to_json(row["inputs"])) for row in rows]
    vectors, words = await embedded(texts, embed), [frozenset(_WORD.findall(text)) for text in texts]
    for place, row in enumerate(rows, start=len(places)):
        if embed is None:
            is_near = any(_overlap(words[place], words[other]) >= OVERLAP for other in places)
        else:
            is_near = bool(places) and float(np.max(vectors[places] @ vectors[place])) >= SIMILARITY
        if texts[place] in there:
            counts.known += 1
        elif is_near:
            counts.duplicates += 1
        else:
            places.append(place)
            kept.append(row)
    return kept


def _overlap(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / max(len(one | other), 1)
