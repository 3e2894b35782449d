"""Results of harnesses that benchmark models: Inspect, lm-evaluation-harness, HELM, OpenAI evals."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evalflows.harnesses.assembling import NoResultsError, Row, at, flattened, has, rows_in

_LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}  # as Inspect's own metrics read them
_SAMPLES = re.compile(r"samples_(.+?)(_\d{4}-\d\d-\d\dT[\d.:-]+)?\.jsonl")
"""How lm-eval names the samples of a task."""
_HELM_RUN = re.compile(r",?\bmodel=([^,]+)")  # in the name of a folder: mmlu:subject=anatomy,model=openai_gpt2


def read_inspect(log: Any, source: str) -> Iterator[Row]:
    why = ": ".join(filter(None, (f"its status is {log['status']}", at(log, "error", "message"))))
    for sample in log.get("samples") or ():
        scores = {name: at(score, "value") for name, score in (sample.get("scores") or {}).items()}
        yield {
            **sample,
            "id": f"{log['eval']['task']}/{sample['id']}",
            "system": at(log, "eval", "model"),
            "output": at(sample, "output", "completion"),
            "scores": {name: _LETTERS.get(str(value), value) for name, value in flattened(scores).items()},
            "error": at(sample, "error", "message"),
            "unfinished": None if log["status"] == "success" else why,
        }


def read_lm_eval(content: Any, source: str) -> Iterator[Row]:
    if has(content, "results configs"):
        raise NoResultsError(f"{source}: got the means of lm-eval's tasks, wanted its samples_*.jsonl (--log_samples)")
    task = f"{named[1]}/" if (named := _SAMPLES.fullmatch(Path(source).name)) else ""
    for row in rows_in(content):
        numeric = [name for name, value in row.items() if isinstance(value, int | float) and name != "doc_id"]
        scores = {name: row.get(name) for name in row.get("metrics") or numeric}
        of_filter = f",{row['filter']}" if row.get("filter", "none") != "none" else ""
        yield {
            "id": f"{task}{row['doc_id']}",
            "inputs": row.get("doc"),
            "reference": row.get("target"),
            "output": row["filtered_resps"],
            "scores": {f"{name}{of_filter}": score for name, score in scores.items() if not isinstance(score, list)},
            "metadata": row.get("doc"),
        }


def read_helm(content: Any, source: str) -> Iterator[Row]:
    run = Path(source).parent.name
    task, model = (_HELM_RUN.sub("", run), found[1]) if (found := _HELM_RUN.search(run)) else (None, None)
    for row in rows_in(content):
        if isinstance(row["stats"], Mapping):
            raise NoResultsError(f"{source}: got HELM's display_predictions.json, wanted its per_instance_stats.json")
        perturbation = at(row, "perturbation", "name")
        yield {
            "id": "/".join(filter(None, (task, row["instance_id"], perturbation))),
            "system": model,
            "trial": row.get("train_trial_index"),
            "scores": {stat["name"]["name"]: stat.get("mean") if stat["count"] else None for stat in row["stats"]},
            "metadata": {"perturbation": perturbation},
        }


def read_openai_evals(content: Any, source: str) -> Iterator[Row]:
    events = rows_in(content)
    is_whole = any("final_report" in event for event in events)
    for event in events:
        kind, data = event.get("type"), event.get("data") or {}
        scores = {"match": data.get("correct")} if kind == "match" else data if kind == "metrics" else {}
        if event.get("sample_id"):
            yield {
                "id": event["sample_id"],
                "system": ", ".join(at(events[0], "spec", "completion_fns") or ()),
                "inputs": data.get("prompt"),
                "reference": data.get("expected"),
                "output": data.get("sampled"),
                "scores": {name: value for name, value in scores.items() if not isinstance(value, str | list | dict)},
                "error": (data.get("message") or data.get("type") or kind) if kind == "error" else None,
                "unfinished": None if is_whole else "it has no final report",
            }
