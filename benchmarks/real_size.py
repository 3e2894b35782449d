"""A store of real size, made as users make theirs: by commands, in a folder with a dataset, recorded answers of five
targets, people's labels, a pairwise comparison, and traces of production with an evaluation that watches them.

The words are drawn with a fixed seed, so all stores of a size have the same texts.
"""

import csv
import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from evalflows.store.sql import connect

SMALL, MIDDLE, LARGE = 100, 2_000, 10_000
"""Examples of a store. Five targets answer each, so the middle one has 10,000 answers, the large one 50,000."""

TARGETS = 5
WORDS = ["river", "stone", "light", "paper", "winter", "garden", "market", "silver", "bridge", "yellow"]
TOPICS = ("billing", "delivery", "returns", "account")
DAYS = 4
"""The days of production, up to the day before yesterday: watch rules look back for a month, and look at no day before
its traces have had time to come, which for yesterday is an hour after midnight."""

BROKEN = 1
"""The last days of production, on which half of the answers are a question mark."""

Command = Callable[..., str]
"""Runs `evalflows` with arguments in the folder of a store, and returns its output; raises if its exit code is none of
`may_exit`."""

SPEC = """\
name: support
dataset: {path: rows.jsonl}
targets: [TARGETS]
baseline: t0
evaluators: [exact_match, edit_similarity]
composites: [{name: quality, weights: {exact_match: 1, edit_similarity: 2}}]
gates: [{name: release, non_inferiority: {edit_similarity: 0.05}}]
"""
PAIRS = """\
name: pairs
experiments: [support-t0, support-t1]
evaluators: [preferences:later]
slice_by: [metadata.topic]
"""
PREFERENCES = '''\
def later(outputs):
    """Prefer the answer that comes later in the alphabet."""
    first, second = (str(one) for one in outputs)
    return "tie" if first == second else "A" if first > second else "B"
'''
WATCH = """\
name: production
evaluators: [{use: length_between, name: answered, args: {least: 10, most: 4000}}]
watch: [{threshold: answered, minimum: 0.9, min_n: 20}]
settle_s: 0
"""
RETAIN = "experiments_days: 365\n"


def make(folder: Path, examples: int, command: Command) -> None:
    """Fill an empty folder: files, and a store by commands."""
    draw = random.Random(examples)
    _write_rows(folder / "rows.jsonl", _questions(examples, draw))
    for target in range(TARGETS):
        answers = ({"id": f"q{n}", "outputs": {"answer": _text(draw, 10)}} for n in range(examples))
        _write_rows(folder / f"t{target}.jsonl", answers)
    _write_rows(folder / "traces.jsonl", _traces(examples, draw))
    targets = ", ".join(f"{{name: t{n}, kind: recorded, path: t{n}.jsonl}}" for n in range(TARGETS))
    files = {"support.yaml": SPEC.replace("TARGETS", targets), "pairs.yaml": PAIRS, "preferences.py": PREFERENCES}
    for name, text in {**files, "watch.yaml": WATCH, "retain.yaml": RETAIN}.items():
        (folder / name).write_text(text, encoding="utf-8")
    for arguments in MAKING:
        command(*arguments)
    label(folder)
    command("labels", "import", "labels.csv")


MAKING = (
    ("gate", "support.yaml"),
    ("compare", "pairs.yaml"),
    ("traces", "add", "traces.jsonl"),
    ("evaluate-traces", "watch.yaml"),
    ("labels", "next", "support-t1", "exact_match", "--n", "60", "--out", "labels.csv"),
)
"""The commands that make a store, in this order."""


def label(folder: Path) -> None:
    """Fill in the labels to give: no answer is right. Rank the same answers, for `calibrate`."""
    with (folder / "labels.csv").open(encoding="utf-8", newline="") as file:
        rows = [{**row, "value": "no"} for row in csv.DictReader(file)]
    with (folder / "labels.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)
    ranked = "".join(f"q{n},{n + 1}\n" for n in range(20))
    (folder / "ranked.csv").write_text(f"example_id,rank\n{ranked}", encoding="utf-8")


def _questions(count: int, draw: random.Random) -> Iterable[Mapping[str, Any]]:
    for n in range(count):
        reference = {"answer": _text(draw, 3)}
        metadata = {"topic": TOPICS[n % len(TOPICS)]}
        yield {
            "id": f"q{n}",
            "inputs": {"question": _text(draw, 12)},
            "reference_outputs": reference,
            "metadata": metadata,
        }


def _traces(count: int, draw: random.Random) -> Iterable[Mapping[str, Any]]:
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    began, apart = midnight - timedelta(days=1 + DAYS), timedelta(days=DAYS) / count
    for n in range(count):
        is_broken = n * DAYS >= count * (DAYS - BROKEN) and n % 2
        output = "?" if is_broken else _text(draw, 10)
        yield {"trace_id": f"t{n}", "started_at": (began + n * apart).isoformat(), "latency_s": 1.5} | {
            "input": _text(draw, 12),
            "output": output,
            "session_id": f"s{n}",
            "user_id": f"u{n // 9}",
            "model": "gpt-4o-mini",
            "tokens_in": 40,
            "tokens_out": 20,
        }


def _text(draw: random.Random, words: int) -> str:
    return " ".join(draw.choice(WORDS) + str(draw.randint(0, 999)) for _ in range(words))


def _write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What is in such a store: ids that doors take."""

    experiments: Sequence[str]  # of the targets, in order
    snapshot: str
    comparison: str
    pair: Sequence[str]  # the two runs
    decision: str
    incident: str
    trace: str

    @classmethod
    def of(cls, store: Path) -> "Made":
        with connect(store) as catalog:

            def column(query: str) -> list[str]:
                return [value for (value,) in catalog.execute(query).fetchall()]

            return cls(
                experiments=column("select experiment_id from experiments where name like 'support-%' order by name"),
                snapshot=column("select snapshot_id from snapshots order by recorded_at limit 1")[0],
                comparison=column("select comparison_id from comparison_sets")[0],
                pair=column("select unnest([left_run_id, right_run_id]) from (from comparisons order by all limit 1)"),
                decision=column("select decision_id from decisions order by 1")[0],
                incident=column("select incident_id from incidents")[0],
                trace=column("select trace_id from traces order by 1")[0],
            )
