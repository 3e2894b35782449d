"""Ids of run groups and experiments, and the description of evaluators that is stored with them."""

import json
from datetime import UTC, datetime

from evalflows.store.records import dependent_id

NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)


def group_of_run_key(run_key: str) -> str:
    """Return the run group of all starts with this run key."""
    return dependent_id("group", NO_TIME, "run_key", run_key)


def experiment_id(group: str, target: str) -> str:
    """Return the id of the experiment of a target in a run group."""
    return dependent_id("exp", group, group, target)


def without_live_references(evaluators: str) -> list[dict[str, object]]:
    """Return the evaluators of a row without references to live functions.

    These differ between processes, though the versions are the same.
    """
    return [
        {name: value for name, value in evaluator.items() if not str(value).startswith("live:")}
        for evaluator in json.loads(evaluators)
    ]


def code_of_evaluators(evaluators: str) -> dict[str, str]:
    """Return a hash of each part of the user's code in the evaluators of a row."""
    return {name: digest for one in json.loads(evaluators) for name, digest in one.get("code", {}).items()}


def evaluator_labels(evaluators: str) -> set[str]:
    """Return name, version and sample of each evaluator of a row, for messages."""
    return {
        f"{evaluator['name']}@{evaluator['version']}" + (f" of {evaluator['sample']}" if "sample" in evaluator else "")
        for evaluator in json.loads(evaluators)
    }
