"""An experiment with a judge's scores, as a run leaves them, and files of what people say of it."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matched import experiment

from evalflows.store.records import JudgementRow, derived_id
from evalflows.store.store import Store


def run_of(owner: str, example: str, repetition: int = 0) -> str:
    return derived_id(owner, example, repetition)


def judged(
    name: str,
    said: Mapping[str, Any],
    *,
    metric: str = "correct",
    version: str = "v1",
    model: str | None = "judge-1",
    place: int = 0,
    **fields: Any,
) -> str:
    """Keep an experiment whose runs a judge has scored: by example, or by example and repetition, a number, a label, or
    None where the judgement failed. Returns its id."""
    listed = {one: value if isinstance(value, list) else [value] for one, value in said.items()}
    rows = fields.pop("rows", ())
    owner = experiment(name, {one: [f"answer to {one}"] * len(v) for one, v in listed.items()}, place=place, rows=rows)
    score(owner, said, metric=metric, version=version, model=model, **fields)
    return owner


def score(
    owner: str,
    said: Mapping[str, Any],
    *,
    metric: str = "correct",
    version: str = "v1",
    model: str | None = "judge-1",
    **fields: Any,
) -> None:
    """Add a judge's scores to an experiment."""
    rows = [
        _score(owner, example, repetition, value, metric, version, {"judge_model": model, **fields})
        for example, given in said.items()
        for repetition, value in enumerate(given if isinstance(given, list) else [given])
    ]
    Store().append("judgements", owner, f"{metric}-{version}", rows)


def _score(
    owner: str, example: str, repetition: int, value: Any, metric: str, version: str, fields: Mapping[str, Any]
) -> JudgementRow:
    run = run_of(owner, example, repetition)
    became: dict[str, Any] = {"status": "failed", "error": "boom"} if value is None else {"status": "scored"}
    became |= {"label": value} if isinstance(value, str) else {"value": value}
    return JudgementRow(
        judgement_id=derived_id(run, None, metric, version),
        subject_kind="run",
        subject_id=run,
        experiment_id=owner,
        run_id=run,
        example_id=example,
        repetition=repetition,
        metric=metric,
        evaluator=metric,
        evaluator_version=version,
        **became,
        **fields,
    )


def write_csv(path: str | Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """A file of labels."""
    target = Path(path)
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)))
        writer.writeheader()
        writer.writerows(rows)
    return target
