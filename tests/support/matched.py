"""Experiments whose answers a test gives, in the store as runs leave them, and comparisons of them without Prefect."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

from store_rows import make_row

from evalflows.engine.pair_trials import pair_chunks
from evalflows.engine.pairs import Context
from evalflows.engine.spec_evaluators import reference_to
from evalflows.specs.comparison import ComparisonSpec
from evalflows.store.records import ComparisonSetRow, JudgementRow, OutputRow, derived_id, to_json
from evalflows.store.snapshots import freeze, to_examples
from evalflows.store.sql import connect
from evalflows.store.store import Store
from evalflows.tasks.compare import check_and_resolve, compute_win_rates
from evalflows.tasks.finish import finish
from evalflows.tasks.start import start_comparison
from evalflows.tasks.work_through import judge

START = datetime(2026, 1, 1, tzinfo=UTC)
FAILED, NEVER = "FAILED", "NEVER"
"""Instead of an answer: the run failed, or was not attempted."""

Answers = Mapping[str, Any]
"""By example: a text, FAILED, NEVER, or a list of these, one a repetition; what is not there has no row."""


def rows_of(examples: Sequence[str], **fields: Any) -> list[dict[str, Any]]:
    """Rows of a dataset, one a name."""
    return [{"id": one, "inputs": {"question": f"{one}?"}, **fields} for one in examples]


def experiment(
    name: str, answers: Answers, *, place: int = 0, rows: Sequence[Mapping[str, Any]] = (), **fields: Any
) -> str:
    """Keep an experiment with these answers; of two, that with the lower `place` is the older. Returns its id."""
    store = Store()
    identity = f"exp-{place:02}-{name}"
    examples = to_examples(enumerate(rows or rows_of(list(answers))), "rows")
    snapshot = freeze(store, examples, name=None, source="rows")
    given = {example: one if isinstance(one, list) else [one] for example, one in answers.items()}
    repetitions = fields.pop("repetitions", max(len(several) for several in given.values()))
    made = [
        _output(identity, example, repetition, answer)
        for example, several in given.items()
        for repetition, answer in enumerate(several)
    ]
    of = {"experiment_id": identity, "name": name, "run_group": f"group of {name}", "target": f"target of {name}"}
    of |= {"snapshot_id": snapshot, "n_examples": len(examples), "repetitions": repetitions, "chunk_size": 250}
    of |= {"dataset_name": "questions", "evaluators": "[]", "spec": "{}", "state": "completed", "started_at": START}
    store.append("outputs", identity, "p", made)
    store.append("experiments", identity, "p", [make_row("experiments", **of | fields)])
    return identity


def _output(owner: str, example: str, repetition: int, answer: str) -> OutputRow:
    became: dict[str, Any] = {"status": "ok", "outputs": to_json({"answer": answer}), "length": len(answer)}
    if answer == FAILED:
        became = {"status": "failed", "error": f"no answer to {example}"}
    if answer == NEVER:
        became = {"status": "not_attempted", "error": "over budget"}
    run = derived_id(owner, example, repetition)
    steps = to_json([{"name": "search", "inputs": {"query": example}}])
    return OutputRow(run_id=run, experiment_id=owner, example_id=example, repetition=repetition, steps=steps, **became)


def spec_of(experiments: Sequence[str], *evaluators: Any, **changes: Any) -> ComparisonSpec:
    """What to compare, by functions, names or specs."""
    judges = [named(one) if callable(one) else one for one in evaluators]
    return ComparisonSpec.model_validate({"experiments": list(experiments), "evaluators": judges} | changes)


def named(function: Callable[..., Any]) -> dict[str, Any]:
    """A function as a spec has it."""
    return {"use": reference_to(function), "name": function.__name__}


def compared(
    experiments: Sequence[str], *evaluators: Any, resume: str | None = None, **changes: Any
) -> ComparisonSetRow:
    """Compare them from the check of the spec to the verdicts, as the flow does; the comparison's last row."""
    run, row = begun(spec_of(experiments, *evaluators, **changes), resume)
    finish.fn(run, [row])
    compute_win_rates.fn(run, row)
    (ended,) = Store().read("comparison_sets", row.comparison_id)
    return ended  # type: ignore[no-any-return]


def begun(spec: ComparisonSpec, resume: str | None = None) -> tuple[Context, ComparisonSetRow]:
    """The same up to the judgements; the run and its row."""
    run = check_and_resolve(spec)
    row = start_comparison.fn(run, resume)
    for chunk in pair_chunks(row):
        judge.fn(run, chunk)
    return run, row


def judgements(comparison_id: str) -> list[JudgementRow]:
    """The rows of a comparison, sorted by metric, example, repetition, pair and order."""
    rows: list[JudgementRow] = Store().read("judgements", comparison_id)
    by = ("metric", "example_id", "repetition", "left_experiment_id", "right_experiment_id", "shown_first")
    return sorted(rows, key=attrgetter(*by))


def asked(query: str, *parameters: object) -> list[tuple[Any, ...]]:
    """What a query of the views gives."""
    with connect() as catalog:
        return catalog.execute(query, list(parameters)).fetchall()
