"""Results that other harnesses wrote as experiments of recorded answers, in memory or in a store, so that everything
decides on them as on runs of ours."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import PurePath
from typing import Any

import numpy as np

from evalflows.harnesses.assembling import ResultRow, SystemResults, with_columns
from evalflows.specs.errors import InputError, names_to_choose
from evalflows.specs.evaluator import as_key
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.files import make_spec
from evalflows.specs.frozen import dataclass
from evalflows.specs.gate import RULE_FIELDS
from evalflows.specs.grouping import grouped
from evalflows.specs.metric_names import MEASURES, base_metric, kept_apart, sliced_metric
from evalflows.specs.values import is_blank
from evalflows.store.queries.values import MEASURED, MetricValues, Values, has_two_values
from evalflows.store.records import ExampleRow, ExperimentRow, OutputRow, derived_id, new_id, now, to_json
from evalflows.store.snapshots import Examples, content_line, example_of, examples_in_memory, freeze, id_of_lines
from evalflows.store.store import Store

EVALUATOR_VERSION = "recorded"
"""Of every metric of a file: what gave its scores is not known."""

_HARM = re.compile(
    r"(?<![^\W_])(toxic|toxicity|harmful|harmfulness|bias|biased|stereotypes?|hallucinat(?:ions?|ed)|refusals?|refused"
    r"|jailbreaks?|attacks?|leaks?|leaked|leakage|contradictions?|violations?|errors?|failures?|timeouts?|crashes"
    r"|retries|noise_sensitivity|fpr|fnr"
    r"|false_(?:positive|negative)s?|wer|cer|ter|loss|nll|perplexity|bits_per_byte|brier|ece|regret|distance|divergence"
    r"|deviation|mae|mape|mse|rmse|latency|duration|runtime|time|delay|ttft|cost|price|steps|tokens|token_count"
    r")(?![^\W_])",
    re.IGNORECASE,
)
"""Metrics that have one of these words in their name are usually better if they are lower."""

_GOOD = re.compile(
    r"(?<![^\W_])(no|non|not|without|free|absence|avoid(?:ed|ance|s)?|saved|savings?|accuracy|correct(?:ness)?"
    r"|pass(?:ed)?|f1|precision|recall|auc|auroc|detect(?:ed|ion)|awareness|similarity|resistance|recovery)(?![^\W_])",
    re.IGNORECASE,
)
"""Words that turn them around: `no_errors`, `hallucination_free`, `bias_detection_accuracy`."""

_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")  # between the words of `errorRate`

_OTHER_UNIT = 10
"""A metric that exceeds this in one file, and is a share in another, is probably percent."""

INPUTS = "inputs"
"""The cluster of examples with equal inputs, if no field has this name."""

_NAMED = 3
"""Ids that a message names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsOfMetric:
    """A metric of a system, and its score of every run: an array of shape (examples, repetitions), NaN for none."""

    metric: MetricValues
    runs: Values


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSystem:
    """The results of a system as an experiment of recorded answers."""

    row: ExperimentRow
    examples: Examples
    results: SystemResults

    def values(self) -> Iterator[RunsOfMetric]:
        """Yield each metric by name, as `metric_values` reads it from a store."""
        places = {identity: place for place, identity in enumerate(self.examples.ids)}
        rows, shape = self.results.rows, (len(places), self.row.repetitions)
        at = np.array([places[row.example_id] for row in rows]), np.array([row.repetition for row in rows])
        answered = np.zeros(shape, dtype=bool)
        answered[at] = True
        given = {kept_apart(metric): metric for metric in self.results.metrics}
        for name in sorted({*given, *MEASURES}):
            runs, failed = np.full(shape, np.nan), np.zeros(shape, dtype=bool)
            if name in given:
                scores = [row.scores.get(given[name]) for row in rows]
                runs[at] = np.array(scores, dtype=np.float64)  # of None, NaN
                if None in scores:
                    failed[at] = [
                        score is None and given[name] in row.scores for score, row in zip(scores, rows, strict=True)
                    ]
            is_scored, is_missing = ~np.isnan(runs), np.logical_or(failed, ~answered)
            applies = (is_scored | is_missing).sum(axis=1)
            counts, scored = is_scored.sum(axis=1), runs[is_scored]
            sums = np.where(is_scored, runs, 0.0).sum(axis=1)
            means = np.divide(sums, counts, out=np.full(len(places), np.nan), where=counts > 0)
            evaluator, is_yes_no = (name, not scored.size) if name in given else (MEASURED, False)
            yield RunsOfMetric(
                runs=runs,
                metric=MetricValues(
                    metric=name,
                    evaluator=evaluator,
                    evaluator_version=EVALUATOR_VERSION if name in given else MEASURED,
                    is_yes_no=is_yes_no,
                    is_binary=self.row.repetitions == 1 and (is_yes_no or has_two_values(evaluator, means)),
                    values=means,
                    missing=np.asarray(is_missing.any(axis=1)),
                    missing_share=None
                    if self.row.repetitions == 1
                    else is_missing.sum(axis=1) / np.where(applies > 0, applies, 1),
                    inapplicable=1 - applies / self.row.repetitions,
                    scored=int(scored.size),
                    n_missing=int(failed.sum()),
                    weights=np.broadcast_to(np.float64(1), len(places)),
                    are_0_or_1=bool(scored.size and np.isin(scored, (0, 1)).all()),
                ),
            )

    def answers(self, examples: Collection[str] | None = None) -> Iterator[OutputRow]:
        """Yield the answers to some examples, by default to all."""
        owner = self.row.experiment_id
        for row in self.results.rows:
            if examples is None or row.example_id in examples:
                yield OutputRow(
                    run_id=derived_id(owner, row.example_id, row.repetition),
                    experiment_id=owner,
                    example_id=row.example_id,
                    repetition=row.repetition,
                    outputs=None if row.output is None or row.has_failed else to_json(row.output),
                    status="failed" if row.has_failed else "ok",
                    error=row.error if row.has_failed else None,
                    calls=0,
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The experiments of systems, the first of which the others are compared with."""

    spec: ExperimentSpec
    systems: Sequence[RecordedSystem]
    notes: Sequence[str]  # what was assumed, and what differs

    @property
    def rows(self) -> Sequence[ExperimentRow]:
        return [system.row for system in self.systems]


def recorded(
    systems: Sequence[SystemResults],
    rules: Mapping[str, Any],
    *,
    cluster: str | None = None,
    only_shared: bool = False,
    where: str = "rules",
) -> Recorded:
    """Return the results of systems as experiments of one run group.

    Args:
        systems: At least one; the first is the baseline.
        rules: Fields of a spec that say how to decide: gates, metrics, composites, confidence_level, adjustment.
        cluster: The field of the rows by which examples belong together.
        only_shared: Whether examples of the baseline that a candidate lacks are left out. Default: they are missing.
        where: Where the rules are from: messages begin with it.

    A column is a metric too if a rule or another file calls it so, and is none if it groups examples. Raise InputError
    for a text in a metric, for a field that no row has, for a rule on a metric whose direction is not known, and if the
    systems share no example with the same inputs.
    """
    asked = [
        sliced_metric(one) for gate in rules.get("gates") or () for kind in RULE_FIELDS for one in gate.get(kind) or ()
    ]
    in_rules = {one.metric for one in asked}
    grouping = {cluster, *((one.path or "").removeprefix("metadata.") for one in asked)}
    systems = [_without_scores(system, grouping - in_rules) for system in systems]
    wanted = in_rules | {kept_apart(one) for system in systems for one in system.metrics}
    systems, names = [with_columns(system, wanted) for system in systems], names_of(systems)
    texts = _texts_of_inputs(systems)
    if cluster is not None and (cluster != INPUTS or texts is None):
        check_field("cluster", systems, cluster)
    systems, notes = _completed(systems, texts, only_shared=only_shared)
    metrics, harms, said = _metrics(systems, rules.get("metrics") or {})
    said += _scales(systems, metrics, in_rules)
    fields = {
        "name": names[0],
        "dataset": {"snapshot": "snap-"},
        "targets": [{"kind": "recorded", "name": name, "column": "outputs"} for name in names],
        **rules,
        "metrics": metrics,
    }
    spec = make_spec(ExperimentSpec, fields, (), where)
    _check_directions(spec, harms)
    group, made = new_id("group"), list[RecordedSystem]()
    scores = {name for system in systems for name in system.metrics} - grouping
    first = _first_rows(systems)
    known = dict[str, tuple[dict[str, Any], ExampleRow, bytes]]()  # rows of other systems are mostly the same
    snapshots = dict[frozenset[bytes], tuple[str, Examples]]()
    for name, system in zip(names, systems, strict=True):
        examples, lines = list[ExampleRow](), list[bytes]()
        for position, content_of in enumerate(_examples(system, first, cluster, scores, with_inputs=texts is not None)):
            before, example, line = known.get(content_of["id"], (None, None, b""))
            if example is None or before != content_of:
                example = example_of(content_of, position, f"{system.source}:{position + 1}")
                line = content_line(example)
                known.setdefault(content_of["id"], (content_of, example, line))
            examples.append(example if example.position == position else replace(example, position=position))
            lines.append(line)
        content = frozenset(lines)
        if content not in snapshots:
            snapshots[content] = id_of_lines(lines), examples_in_memory(examples)
        snapshot, shared = snapshots[content]
        own = spec.model_copy(update={"dataset": spec.dataset.model_copy(update={"snapshot": snapshot})})
        row = _experiment(system, name, own, group, snapshot, len(examples))
        made.append(RecordedSystem(row=row, examples=shared, results=system))
    return Recorded(spec=spec, systems=made, notes=[*(note for one in systems for note in one.notes), *notes, *said])


def keep(store: Store, made: Recorded) -> None:
    """Keep experiments in a store."""
    from evalflows.store.schemas import from_columns  # late: pyarrow

    for one in made.systems:
        owner = one.row.experiment_id
        freeze(store, one.examples, name=None, source=one.results.source)
        store.publish("outputs", owner, list(one.answers()))
        store.publish("judgements", owner, from_columns("judgements", _scores(one.results, owner)))
        store.publish("experiments", owner, [one.row])


def names_of(systems: Sequence[SystemResults]) -> list[str]:
    """Return a name for each system that no other has: its own, else that of its file or folder, else numbered."""
    by_file = [PurePath(system.source).stem or "results" for system in systems]
    by_folder = [PurePath(system.source).parent.name or stem for system, stem in zip(systems, by_file, strict=True)]
    for names in (
        [system.system or stem for system, stem in zip(systems, by_file, strict=True)],
        by_file,
        by_folder,
        [f"{stem}: {system.system}" for system, stem in zip(systems, by_file, strict=True)],
    ):
        if len({*names}) == len(names):
            return names
    return ["baseline", *(f"candidate {number}" for number in range(1, len(systems)))]


def _without_scores(system: SystemResults, fields: Collection[str | None]) -> SystemResults:
    """Return results in which these fields of the rows are no metrics."""
    if not {*system.metrics}.intersection(fields):
        return system
    rows = [
        replace(
            row,
            scores={name: score for name, score in row.scores.items() if name not in fields or name not in row.fields},
        )
        for row in system.rows
    ]
    return replace(system, rows=rows)


def _texts_of_inputs(systems: Sequence[SystemResults]) -> list[dict[str, str]] | None:
    """Return the inputs of each system as texts by id, alike if they differ in blanks only; None if a row has none.

    Examples are then known by their ids alone. Raise InputError for a system without an example of the first.
    """
    if any(row.inputs is None for system in systems for row in system.rows):
        _check_shared([{row.example_id: "" for row in system.rows} for system in systems], systems)
        return None
    texts = [{row.example_id: to_json(_single_spaced(row.inputs)) for row in system.rows} for system in systems]
    _check_shared(texts, systems)
    return texts


def _single_spaced(value: Any) -> Any:
    """Return a value whose texts have one blank in place of several, and none at their ends."""
    if isinstance(value, str):
        return " ".join(value.split())
    if isinstance(value, Mapping):
        return {name: _single_spaced(one) for name, one in value.items()}
    return [*map(_single_spaced, value)] if isinstance(value, list | tuple) else value


def _completed(
    systems: Sequence[SystemResults], texts: Sequence[Mapping[str, str]] | None, *, only_shared: bool
) -> tuple[list[SystemResults], list[str]]:
    """Return systems in which what a candidate lacks of the baseline, or has with other inputs, is an answer without a
    score, unless only shared examples count; and what to say of examples on one side.

    A candidate could otherwise pass by leaving out what it fails, or by changing its text.
    """
    baseline, *others = systems
    asked = {row.example_id: row for row in reversed(baseline.rows)}
    does = "left out, by --only-shared" if only_shared else "counted as missing; --only-shared leaves them out"
    completed, notes = [baseline], list[str]()
    for number, system in enumerate(others, start=1):
        known = {row.example_id for row in system.rows}
        texts_of = texts[number] if texts else {}
        changed = {one for one, text in texts_of.items() if texts and texts[0].get(one, text) != text}
        if changed:
            count = f"{len(changed)} id{'s have' if len(changed) > 1 else ' has'} other inputs than in"
            named = ", ".join([one for one in reversed(asked) if one in changed][:_NAMED])
            notes.append(f"{system.source}: {count} {baseline.source} ({named}): {does}")
        if absent := asked.keys() - known:
            of = f"{len(absent)} of the baseline's {len(asked)} examples are not in it"
            notes.append(f"{system.source}: {of}: {does}")
        if others_only := dict.fromkeys(row.example_id for row in system.rows if row.example_id not in asked):
            of = f"{len(others_only)} of its {len(known)} examples are not in the baseline"
            notes.append(f"{system.source}: {of}, left out: {', '.join([*others_only][:_NAMED])}")
        rows = [
            replace(row, inputs=asked[row.example_id].inputs)  # they may differ in blanks
            if texts
            and row.example_id in asked
            and row.example_id not in changed
            and row.inputs != asked[row.example_id].inputs
            else row
            for row in system.rows
            if only_shared or row.example_id not in changed
        ]
        own = {kept_apart(name): name for name in system.metrics}
        lacking, repetitions = absent | changed, max(row.repetition for row in system.rows) + 1
        missing = [
            ResultRow(
                example_id=row.example_id,
                repetition=repetition,
                inputs=row.inputs,
                scores=dict.fromkeys(own[name] for name in map(kept_apart, row.scores) if name in own),
                error=f"{'other inputs' if row.example_id in changed else 'no row'} in {system.source}",
            )
            for row in reversed(asked.values())
            if row.example_id in lacking
            for repetition in range(repetitions)
        ]
        completed.append(replace(system, rows=rows if only_shared else [*rows, *missing]))
    return completed, notes


def _check_shared(texts: Sequence[Mapping[str, str]], systems: Sequence[SystemResults]) -> None:
    for system, of_system in zip(systems[1:], texts[1:], strict=True):
        if not {*of_system.items()} & {*texts[0].items()}:
            shared = "no id" if not of_system.keys() & texts[0].keys() else "no id with the same inputs"
            first = f"{next(iter(texts[0]))!r} and {next(iter(of_system))!r}"
            raise InputError(
                f"{systems[0].source} and {system.source}: got {shared} in both, such as {first}, wanted results on "
                "the same examples"
            )


def check_field(what: str, systems: Sequence[SystemResults], field: str) -> None:
    """Raise InputError for a field that no row has; `what` asks for it."""
    known = dict.fromkeys(name for system in systems for row in system.rows for name in row.fields)
    if field not in known:
        raise InputError(f"{what}: got {field!r}, wanted a field of the rows: {names_to_choose(field, known)}")


def _check_directions(spec: ExperimentSpec, harms: Sequence[str]) -> None:
    """Raise InputError if a rule is on a metric that is better if it is lower, as only its name says."""
    named = {base_metric(sliced_metric(metric).metric) for gate in spec.gates for metric in gate.metrics}
    named |= {metric for composite in spec.composites if composite.name in named for metric in composite.metrics}
    for name in harms:
        if name in named:
            options = f"--lower-is-better {name} or --higher-is-better {name}"
            raise InputError(f"{name}: got no direction, wanted {options} (metrics: {name}: higher_is_better)")


def _metrics(
    systems: Sequence[SystemResults], declared: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str], list[str]]:
    """Return what is known of each metric, those whose names alone say that lower is better, and what was assumed of
    all: a range of 0 to 1 where all values are in it."""
    metrics = {name: dict(fields) for name, fields in declared.items()}
    scores: dict[bool, list[str]] = {True: [], False: []}  # by whether higher is better
    higher, harms = list[str](), list[str]()
    measures = {kept_apart(name) for name in MEASURES}
    for given in dict.fromkeys(name for system in systems for name in system.metrics):
        values = [score for system in systems for score in _given(system, given)]
        own = metrics.setdefault(name := kept_apart(given), {})
        if name in measures:
            own.setdefault("higher_is_better", False)
        elif own.get("higher_is_better") is None and _is_harm(name):
            own["higher_is_better"] = False
            harms.append(name)
        if "range" not in own and values and min(values) >= 0 and max(values) <= 1:
            own["range"] = [0, 1]
            scores[own.get("higher_is_better") is not False].append(name)
        elif not {"range", "higher_is_better"} & own.keys():
            higher.append(name)
    said = [
        f"taken as scores from 0 to 1: {', '.join(of)}, {'higher' if is_higher else 'lower'} counts as better"
        for is_higher, of in scores.items()
        if of
    ]
    said += [f"higher counts as better, if --lower-is-better does not say it: {', '.join(higher)}"] if higher else []
    if harms:
        said.append(f"lower counts as better by the name, if --higher-is-better does not say it: {', '.join(harms)}")
    return metrics, harms, said


def _scales(systems: Sequence[SystemResults], metrics: Mapping[str, Any], in_rules: Collection[str]) -> Iterator[str]:
    """Say of metrics whose systems seem to have other units, and of a rule's metric whose range seems to be 1 to 5."""
    for given in dict.fromkeys(name for system in systems for name in system.metrics):
        by_source = [(system.source, _given(system, given)) for system in systems]
        ends = [(source, min(values), max(values)) for source, values in by_source if values]
        shares = [source for source, low, high in ends if low >= 0 and 0 < high <= 1]
        larger = [(source, high) for source, low, high in ends if low >= 0 and high > _OTHER_UNIT]
        if shares and larger:
            yield f"{given}: up to {larger[0][1]:g} in {larger[0][0]}, but from 0 to 1 in {shares[0]}: in other units?"
        every = {value for _, values in by_source for value in values}
        is_undeclared = kept_apart(given) in in_rules and "range" not in metrics[kept_apart(given)]
        if is_undeclared and len(every) > 2 and every <= {1, 2, 3, 4, 5}:
            yield f"{given}: whole numbers from 1 to 5; if it has no others, `range: [1, 5]` in --gates declares it"


def _given(system: SystemResults, metric: str) -> list[float]:
    return [score for row in system.rows if (score := row.scores.get(metric)) is not None]


def _is_harm(metric: str) -> bool:
    """Return whether lower values are probably better, as the name says."""
    name = _CAPITAL.sub("_", metric)
    return _HARM.search(name) is not None and _GOOD.search(name) is None


def _first_rows(systems: Sequence[SystemResults]) -> dict[str, ResultRow]:
    """Return the first row that any system has of each example, with the fields of which only others have a value."""
    first = dict[str, ResultRow]()
    for row in (row for system in systems for row in system.rows):
        before = first.setdefault(row.example_id, row)
        if before is not row and (lacking := {name for name in row.fields if _is_missing(before.fields.get(name))}):
            new = {name: row.fields[name] for name in lacking if not _is_missing(row.fields[name])}
            first[row.example_id] = replace(before, fields={**before.fields, **new})
    return first


def values_of(systems: Sequence[SystemResults], field: str) -> list[str]:
    """Return the values of a field, of the baseline's examples, as slices name them."""
    asked, first = {row.example_id for row in systems[0].rows}, _first_rows(systems)
    given = [row.fields.get(field) for example, row in first.items() if example in asked]
    return [*dict.fromkeys(as_key(value) for value in given if not _is_missing(value))]


def _is_missing(value: Any) -> bool:
    """Return whether a field has no value: null, NaN, or a text of nothing but blanks."""
    return is_blank(value) or value != value


def _examples(
    system: SystemResults,
    first: Mapping[str, ResultRow],
    cluster: str | None,
    scores: Collection[str],
    *,
    with_inputs: bool,
) -> Iterator[dict[str, Any]]:
    """Yield the examples of a system as rows of a dataset, each once, with the reference of the `first` row that any
    system has of it, and its fields, but scores."""
    seen = set[str]()
    for row in system.rows:
        if row.example_id in seen:
            continue
        seen.add(row.example_id)
        said = first[row.example_id]
        fields = {name: value for name, value in said.fields.items() if name not in scores}
        equal = _single_spaced(row.inputs) if cluster == INPUTS and with_inputs else None
        group = None if cluster is None else fields.get(cluster, equal)
        yield {
            "id": row.example_id,
            "inputs": row.inputs if with_inputs else _without_inputs(row.example_id),
            **({"reference_outputs": said.reference} if said.reference is not None else {}),
            **({"metadata": fields} if fields else {}),
            **({"cluster": group if isinstance(group, str) else to_json(group)} if not _is_missing(group) else {}),
        }


def _without_inputs(example: str) -> dict[str, str]:
    return {"id": example}


def is_without_inputs(example: str, inputs: Any) -> bool:
    """Return whether the results of which an example was kept had no inputs."""
    return bool(inputs == _without_inputs(example))


def _experiment(
    system: SystemResults, name: str, spec: ExperimentSpec, group: str, snapshot: str, n_examples: int
) -> ExperimentRow:
    at = now()
    return ExperimentRow(
        experiment_id=new_id("exp", at),
        run_group=group,
        name=name,
        description=f"{system.format}: {system.source}",
        snapshot_id=snapshot,
        n_examples=n_examples,
        repetitions=max(row.repetition for row in system.rows) + 1,
        chunk_size=n_examples,
        target=name,
        target_kind="recorded",
        target_version=derived_id(name, *(to_json([row.example_id, dict(row.scores)]) for row in system.rows)),
        evaluators="[]",
        spec=spec.model_dump_json(),
        evalflows_version=version("evalflows"),
        calls=0,  # of ours
        calls_cached=0,
        cost_usd=0.0,
        state="incomplete" if system.unfinished else "completed",
        reason=system.unfinished,
        started_at=at,
        ended_at=at,
    )


def _scores(system: SystemResults, owner: str) -> dict[str, list[Any]]:
    """Return the columns of the judgements, a row for every metric of every answer: a score that is None is missing,
    and without one the metric does not apply. Records would take five times as long."""
    names = {metric: kept_apart(metric) for metric in system.metrics}
    runs = [derived_id(owner, row.example_id, row.repetition) for row in system.rows]
    rows = [(run, row, metric) for run, row in zip(runs, system.rows, strict=True) for metric in names]
    values = [row.scores.get(metric) for _, row, metric in rows]
    statuses = [
        "scored" if value is not None else "failed" if metric in row.scores else "not_applicable"
        for (_, row, metric), value in zip(rows, values, strict=True)
    ]
    metrics, at = [names[metric] for *_, metric in rows], now()
    return {
        "judgement_id": [derived_id(run, None, names[metric], EVALUATOR_VERSION) for run, _, metric in rows],
        "subject_kind": ["run"] * len(rows),
        "subject_id": [run for run, *_ in rows],
        "experiment_id": [owner] * len(rows),
        "run_id": [run for run, *_ in rows],
        "example_id": [row.example_id for _, row, _ in rows],
        "repetition": [row.repetition for _, row, _ in rows],
        "metric": metrics,
        "value": values,
        "data_type": [None if value is None else "NUMERIC" for value in values],
        "status": statuses,
        "error": [
            row.why_missing(metric) if status == "failed" else None
            for (_, row, metric), status in zip(rows, statuses, strict=True)
        ],
        "evaluator": metrics,
        "evaluator_version": [EVALUATOR_VERSION] * len(rows),
        "attempts": [1] * len(rows),
        "calls": [0] * len(rows),
        "recorded_at": [at] * len(rows),
    }


def read_sentence(systems: Sequence[SystemResults]) -> str:
    """Return what was read, in a sentence: `promptfoo: 120 results of 2 systems; Inspect: 118 results`."""
    parts = list[str]()
    for name, of_format in grouped((system.format, system) for system in systems).items():
        rows: list[ResultRow] = [row for system in of_format for row in system.rows]
        errors = Counter(row.error is not None for row in rows)[True]
        systems_text = f" of {len(of_format)} systems" if len(of_format) > 1 else ""
        parts.append(f"{name}: {len(rows)} results{systems_text}{f', {errors} with errors' if errors else ''}")
    parts += [f"{one.source} is incomplete: {one.unfinished}" for one in systems if one.unfinished]
    return "; ".join(parts)
