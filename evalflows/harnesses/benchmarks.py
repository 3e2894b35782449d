"""Results of harnesses that benchmark models: Inspect, lm-evaluation-harness, HELM, OpenAI evals."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evalflows.harnesses.found import Format, Found, NoResultsError, at, flattened, has, rows_in

_LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""What Inspect's own metrics make of correct, partially correct, incorrect and no answer."""
_SAMPLES = re.compile(r"samples_(.+?)(_\d{4}-\d\d-\d\dT[\d.:-]+)?\.jsonl")
"""What lm-eval names the samples of a task."""
_LM_EVAL_FIELDS = ("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics")


def _read_inspect(log: Any, source: str) -> Iterator[Found]:
    task = at(log, "eval", "task")
    for sample in log.get("samples") or ():
        scores = {name: at(score, "value") for name, score in (sample.get("scores") or {}).items()}
        yield Found(
            id=f"{task}/{sample['id']}",
            place=f": sample {sample['id']}, epoch {sample['epoch']}",
            system=at(log, "eval", "model") or "",
            repetition=sample["epoch"],
            inputs=sample["input"],
            reference=sample.get("target"),
            output=at(sample, "output", "completion"),
            fields=sample.get("metadata") or {},
            scores={name: _LETTERS.get(value, value) for name, value in flattened(scores).items()},
            error=at(sample, "error", "message"),
        )


def _unfinished_inspect(log: Any) -> str | None:
    if log["status"] == "success":
        return None
    return ": ".join(filter(None, (f"its status is {log['status']}", at(log, "error", "message"))))


def _read_lm_eval(content: Any, source: str) -> Iterator[Found]:
    if _are_means(content):
        raise NoResultsError(
            f"{source}: got results of lm-eval, which are means of tasks, "
            "wanted its samples_*.jsonl, which --log_samples writes beside them"
        )
    named = _SAMPLES.fullmatch(Path(source).name)
    for row in rows_in(content):
        suffix = "" if row.get("filter", "none") == "none" else f",{row['filter']}"
        others = [name for name in row if name not in _LM_EVAL_FIELDS and not name.endswith("_hash")]
        scores = {name: row.get(name) for name in row.get("metrics") or others}
        doc = row.get("doc")
        yield Found(
            id=f"{named[1]}/{row['doc_id']}" if named else row["doc_id"],
            place=f": doc_id {row['doc_id']}",
            inputs=doc,
            reference=row.get("target"),
            output=row.get("filtered_resps"),
            fields=doc if isinstance(doc, Mapping) else {},
            scores={f"{name}{suffix}": value for name, value in scores.items() if not isinstance(value, list)},
        )


def _are_means(content: Any) -> bool:
    return has(content, "results", "configs", "versions")


INSPECT = Format(
    name="inspect",
    title="Inspect",
    mark="a .eval zip, or JSON with `eval`, `status` and `samples`",
    recognises=lambda content: at(content, "eval", "task") is not None and "status" in content,
    read=_read_inspect,
    unfinished=_unfinished_inspect,
)
LM_EVAL = Format(
    name="lm-eval",
    title="lm-eval",
    mark="lines with `doc_id`, `resps` and `filtered_resps`",
    recognises=lambda content: has(content, "doc_id", "filtered_resps") or _are_means(content),
    read=_read_lm_eval,
    twice="in parts",
)
