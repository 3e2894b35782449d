"""Pages of datasets: their list, the versions and examples of one, what changed between two versions, and those that
add to a dataset, edit its examples and review its drafts. What people send makes a new version; the old one stays."""

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from evalflows.analysis.judge_exclusions import excluded_metrics
from evalflows.analysis.reviewing import accepted
from evalflows.analysis.trace_datasets import add_traces
from evalflows.dashboard.comparisons import chosen_comparisons
from evalflows.dashboard.links import Links
from evalflows.dashboard.production import MOST_WORST
from evalflows.dashboard.rendering import ON_PAGE, Page, Query, Site, clipped, render
from evalflows.dashboard.review import ReviewSettings, persons_name
from evalflows.reports import datasets
from evalflows.reports.comparison import comparison_overviews
from evalflows.reports.datasets import dataset_versions, difference_text, stored_example
from evalflows.reports.example_detail import place_of
from evalflows.reports.experiments import ListFilter, listed_experiments
from evalflows.reports.word_diff import word_diff
from evalflows.specs import hints
from evalflows.specs.columns import ExampleColumns
from evalflows.specs.dataset import TraceSelection
from evalflows.specs.errors import InputError, NotFoundError
from evalflows.specs.escaping import escaped, json_text
from evalflows.specs.frozen import dataclass
from evalflows.store.dataset_versions import FieldChange, NewVersion, add_examples, content_key, edit_example
from evalflows.store.file_formats import READERS, parse_json
from evalflows.store.ingest import find_snapshot, sent_examples
from evalflows.store.layout import quoted
from evalflows.store.queries.incidents import find_incident, worst_items
from evalflows.store.queries.traces import observations_of_trace
from evalflows.store.records import ExampleRow, from_json, to_json
from evalflows.store.snapshots import current_snapshot, is_draft, load_snapshot, to_examples
from evalflows.store.stop import Stop
from evalflows.store.store import Store

IN_PAGE = 50
NEWEST = 5
"""Versions, experiments and comparisons of a dataset that its page shows at first."""
MOST_CHANGES = 50
"""Examples of each kind of change that are shown."""
IN_CHANGE = 2_000
"""Characters of a changed value that are shown."""

_NEWEST_FIRST = "is_one_of(comparison_id, $1) order by started_at desc"

LONGEST = 200
"""Characters of a dataset's or a file's name."""

Texts = Mapping[str, str]

_changing = threading.Lock()
"""Two changes at once would each leave out the other's."""


def datasets_page(site: Site, query: Query) -> Page:
    """Return the list of datasets, and where a file is added."""
    sort = query.text("sort") or "name"
    body = render(
        "datasets.html",
        site,
        datasets=datasets.listed_datasets(site.store, sort),
        sort=sort,
        address=partial(site.links.page, "datasets"),
        runs=datasets.runs_by_dataset(site.store),
        endings=[*READERS],
        how_to_add=hints.add_dataset().code,
    )
    return Page(title="Datasets", section="datasets", body=body)


def dataset_page(site: Site, query: Query) -> Page:
    """Return one dataset: its versions, what changed from one to another, examples, and what ran on it."""
    name, text, number = query.wanted("name"), query.text("q"), query.number("page")
    versions = datasets.dataset_versions(site.store, name)
    if not versions:
        find_snapshot(site.store, name)
        raise NotFoundError(f"dataset {name!r}: got a snapshot's id, wanted a dataset's name")
    snapshots = [version.snapshot_id for version in versions]
    shown = query.choice("version", snapshots, snapshots[0])
    old = query.choice("against", snapshots, "")
    examples, count = datasets.listed_examples(site.store, shown, text, limit=IN_PAGE, offset=IN_PAGE * (number - 1))
    compared, n_comparisons = chosen_comparisons(site.store, dataset=name, limit=NEWEST)
    ran = listed_experiments(site.store, ListFilter(dataset=name), limit=NEWEST)
    difference, changed = datasets.changed_examples(site.store, old, shown, MOST_CHANGES) if old else (None, [])
    chosen = None if shown == snapshots[0] else shown
    body = render(
        "dataset.html",
        site,
        name=name,
        versions=versions,
        shown=next(version for version in versions if version.snapshot_id == shown),
        newest=NEWEST,
        old=old,
        checks=datasets.snapshot_checks(site.store, shown),
        difference=difference,
        counts=difference and datasets.difference_text(difference),
        changed=changed,
        words=_words,
        most_changes=MOST_CHANGES,
        examples=examples,
        count=count,
        q=text,
        number=number,
        last=-(-count // IN_PAGE),
        version=chosen,
        address=lambda page: site.links.dataset(name, version=chosen, q=text, page=page),
        experiments=ran.experiments,
        n_experiments=ran.count,
        excluded=excluded_metrics(
            site.store, {experiment.experiment_id: experiment.run_group for experiment in ran.experiments}
        ),
        comparisons=comparison_overviews(site.store, _NEWEST_FIRST, [compared]) if compared else [],
        n_comparisons=n_comparisons,
        endings=[*READERS],
        n_drafts=datasets.drafts_by_dataset(site.store).get(name, 0),
    )
    return Page(title=name, section="datasets", body=body)


def _words(change: FieldChange) -> Any:
    old, new = (
        "" if side is None else clipped(side if isinstance(side, str) else json_text(side), IN_CHANGE).text
        for side in (change.old, change.new)
    )
    return word_diff(old, new)


@dataclass(frozen=True, slots=True)
class _Field:
    """A part of an example as a person edits it: the text of one field, or all fields as JSON."""

    name: str  # what the form sends
    label: str
    text: str
    is_text: bool = True  # of a draft: no JSON


COLUMNS = {"inputs": "Inputs", "reference_outputs": "Reference", "metadata": "Metadata"}


def dataset_example_page(site: Site, query: Query) -> Page:
    """Return one example of a dataset, to be edited in the newest version; without an id, the form of a new one."""
    name, identity = query.wanted("dataset"), query.text("id")
    newest = current_snapshot(site.store, name)
    if newest is None:
        raise NotFoundError(f"dataset {name!r}: not in the store")
    snapshot = query.text("version") or newest
    if snapshot not in [version.snapshot_id for version in dataset_versions(site.store, name)]:
        raise NotFoundError(f"version: got {snapshot!r}, wanted one of the dataset {name!r}")
    row = None if identity is None else stored_example(site.store, snapshot, identity)
    like = row or next(iter(load_snapshot(site.store, newest)), None)
    body = render(
        "dataset_example.html",
        site,
        name=name,
        row=row,
        version=None if snapshot == newest else snapshot,
        place=None if row is None else place_of(site.store, snapshot, row.example_id),
        fields={label: _fields(column, like, is_new=row is None) for column, label in COLUMNS.items()},
        seen=None if row is None else content_key(row),
        most=ON_PAGE,
    )
    title = f"{identity} in {name}" if identity else f"New example of {name}"
    return Page(title=title, section="datasets", body=body)


def _fields(column: str, example: ExampleRow | None, *, is_new: bool) -> list[_Field]:
    """Return what a person edits of a column: each text by itself, unless a form would change it, or JSON.

    A new example has the fields of another, empty.
    """
    label = COLUMNS[column]
    content = None if example is None else getattr(example, column)
    values = {} if content is None else from_json(content)
    if column != "metadata" and values and all(map(_is_editable, values.values())):
        return [
            _Field(f"{column}.{name}", label if len(values) == 1 else f"{label}: {name}", "" if is_new else text)
            for name, text in values.items()
        ]
    text = "" if is_new or content is None else json_text(values, indent=1)
    return [_Field(column, f"{label}, as JSON", text)]


def _is_editable(value: Any) -> bool:
    """Return whether a form gives a value back as it is: a text without carriage returns and characters that are
    escaped."""
    return isinstance(value, str) and bool(value.strip()) and "\r" not in value and escaped(value) == value


def draft_page(site: Site, query: Query) -> Page:
    """Return the next draft of a dataset, or the one that the address names, to be accepted, edited or rejected."""
    name, identity = query.wanted("dataset"), query.text("id")
    examples = load_snapshot(site.store, find_snapshot(site.store, name))
    drafts = [examples.ids[number] for number in examples.drafts()]
    if identity is None:
        after, order = query.text("after"), {example: number for number, example in enumerate(examples.ids)}
        rest = [draft for draft in drafts if order[draft] > order.get(after or "", -1)]
        identity = next(iter(rest or drafts), None)
    elif identity not in drafts:
        raise NotFoundError(f"example {identity!r}: is not a draft in the newest version of dataset {name!r}")
    row = None if identity is None else examples[examples.ids.index(identity)]
    address = site.links.page("review-drafts", dataset=name, id=identity)
    body = render(
        "review_draft.html",
        site,
        name=name,
        row=row,
        n_drafts=len(drafts),
        n_examples=len(examples),
        passages=() if row is None else _passages_of(row),
        fields=() if row is None else _draft_fields(row),
        seen=None if row is None else content_key(row),
        address=address,
        skip=site.links.page("review-drafts", dataset=name, after=identity),
        most=ON_PAGE,
    )
    return Page(title=f"Drafts of {name}", section="review", body=body, has_key_r=row is not None)


def _passages_of(draft: ExampleRow) -> list[Mapping[str, Any]]:
    """Return the passages that a draft rests on, or that do not answer it, with their texts as JSON."""
    of_columns = (from_json(draft.reference_outputs) or {}).get("contexts"), from_json(draft.metadata).get("near")
    found = [passage for passages in of_columns if isinstance(passages, list) for passage in passages]
    shown = [passage for passage in found if isinstance(passage, dict) and isinstance(passage.get("text"), str)]
    return [passage | {"text": to_json(passage["text"])} for passage in shown]


def _draft_fields(draft: ExampleRow) -> list[_Field]:
    """Return each field of a draft's inputs and reference: its text, or JSON."""
    fields = []
    for column in ("inputs", "reference_outputs"):
        for name, value in (from_json(getattr(draft, column)) or {}).items():
            label, is_text = f"{COLUMNS[column]}: {name}", _is_editable(value)
            text = value if is_text else json_text(value, indent=1)
            fields.append(_Field(f"{column}.{name}", label if is_text else f"{label}, as JSON", text, is_text))
    return fields


def take_draft(store: Store, query: Query, texts: Texts) -> dict[str, Any]:
    """Store that a person accepts a draft, as it is or edited, or rejects it, as a new version of the dataset."""
    name, identity, by = query.wanted("dataset"), query.wanted("id"), persons_name(texts.get("by"))
    done = Query.of(texts.items()).choice("do", ("accepted", "rejected"), "accepted")
    with _changing:
        draft = stored_example(store, find_snapshot(store, name), identity)
        if not is_draft(draft.metadata):
            raise InputError(f"example {identity!r}: is already accepted")
        edited: dict[str, Any] = {}
        for field in _draft_fields(draft):
            column, _, part = field.name.partition(".")
            text = texts.get(field.name, field.text)
            value = text if field.is_text else parse_json(text.encode(errors="surrogatepass"), field.name)
            edited.setdefault(column, {})[part] = value
        changes = accepted(draft, edited, by) if done == "accepted" else None
        edit_example(store, name, identity, changes, seen=texts.get("seen", ""), source=f"a draft {done} by {by}")
    return {"location": Links().page("review-drafts", dataset=name, after=identity)}


def take_example(store: Store, query: Query, texts: Texts) -> dict[str, Any]:
    """Store an example that a person edited, or a new one, as a new version of the dataset."""
    name, by, identity = query.wanted("dataset"), persons_name(texts.get("by")), query.text("id")
    fields: dict[str, Any] = {column: _column(column, texts) for column in COLUMNS}
    fields |= {column: texts.get(column, "").strip() or None for column in ("split", "cluster")}
    if fields["inputs"] is None:
        raise InputError("inputs: got none, wanted a text")
    with _changing:
        if identity is not None:
            made = edit_example(store, name, identity, fields, seen=texts.get("seen", ""), source=f"an edit by {by}")
        else:
            find_snapshot(store, name)
            (example,) = to_examples([(1, {**fields, "id": texts.get("id")})], "example")
            identity = example.example_id
            made = add_examples(store, name, [example], source=f"a new example by {by}")
    return _told(made, Links().dataset_example(name, identity))


def _column(column: str, texts: Texts) -> Any:
    """Return what a form says of a column: its fields, or JSON. None if all of it is empty."""
    fields = {name.partition(".")[2]: text for name, text in texts.items() if name.startswith(f"{column}.")}
    if fields:
        return fields if any(map(str.strip, fields.values())) else None
    text = texts.get(column, "")
    return parse_json(text.encode(errors="surrogatepass"), column) if text.strip() else None


@dataclass(frozen=True, slots=True)
class SentFile:
    """A file that was sent, and what ends its reading when the client goes."""

    content: bytes
    stop: Stop


def take_file(store: Store, query: Query, sent: SentFile) -> dict[str, Any]:
    """Store the rows of a file as a new version of a dataset, or as a dataset; the address says how they are read."""
    file, by = _short(query, "file"), persons_name(query.text("by"))
    name = _short(query, "dataset")
    inputs, reference, identity = query.text("inputs"), query.text("reference"), query.text("id")
    if inputs is None and (reference or identity):
        raise InputError("reference and id: wanted the columns of the inputs too")
    columns = None if inputs is None else ExampleColumns.named(inputs, reference, identity)
    examples = sent_examples(sent.content, file, columns, sent.stop)
    with _changing:
        replace = query.text("replace") is not None
        made = add_examples(store, name, examples, source=f"{file}, uploaded by {by}", replace=replace)
    return _told(made, Links().dataset(name))


def take_reviewed(store: Store, query: Query, texts: Texts) -> dict[str, Any]:
    """Add the example of an item that a review's page has shown to a dataset, or create the dataset."""
    settings = ReviewSettings.of(query)
    if (trace := texts.get("trace")) is not None:
        return _add_traces(store, [trace], {**texts, "by": settings.labeller})
    item = settings.review(store).item(texts.get("item", ""))
    (row,) = store.read("experiments", item.experiment_id)
    example = stored_example(store, row.snapshot_id, item.example_id)
    name = _short(Query.of(texts.items()), "dataset")
    with _changing:
        made = add_examples(store, name, [example], source=f"a review by {settings.labeller}")
    return _told(made)


def take_trace(store: Store, query: Query, texts: Texts) -> dict[str, Any]:
    """Add a trace to a dataset, or create the dataset, as `evalflows dataset from-traces` does: secrets are masked."""
    return _add_traces(store, [observations_of_trace(store, query.wanted("id"))[0].trace_id], texts)


def take_incident(store: Store, query: Query, texts: Texts) -> dict[str, Any]:
    """Add the worst traces of an incident to a dataset, or make one of them."""
    worst = worst_items(store, find_incident(store, query.wanted("id")), MOST_WORST)
    return _add_traces(store, sorted({item.trace_id for item in worst if item.trace_id}), texts)


def _add_traces(store: Store, traces: Sequence[str], texts: Texts) -> dict[str, Any]:
    by, name = persons_name(texts.get("by")), _short(Query.of(texts.items()), "dataset")
    if not traces:
        raise InputError("traces: got none, wanted at least one")
    chosen = f"trace_id in ({', '.join(map(quoted, traces))})"
    selection = TraceSelection(filter=chosen, keep_output_as_reference="reference" in texts)
    with _changing:
        added = add_traces(store, name, selection, source=f"production, by {by}")
    counts, known = added.counts, "the dataset already has this input"
    became = f"{counts.added} added" if len(traces) > 1 else "added" if counts.added else f"not added: {known}"
    masked = "".join(f"; masked: {kind} {n}" for kind, n in sorted(counts.masked.items()))
    return {"said": f"{name}: {became}; {added.n_examples} examples{masked}", "snapshot": added.snapshot}


def _told(made: NewVersion, location: str | None = None) -> dict[str, Any]:
    said = f"{made.name}: {made.n_examples} examples; {difference_text(made.difference)}"
    return {"said": said, "snapshot": made.snapshot, "location": location}


def _short(query: Query, name: str) -> str:
    text = query.wanted(name).strip()
    if not text or len(text) > LONGEST:
        raise InputError(f"{name}: got {len(text)} characters, wanted a name of at most {LONGEST}")
    return text
