"""Telling what a gate decided: an event for automations, a page in Prefect's UI, a failed run where it failed."""

from collections.abc import Sequence

from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.events import emit_event

from specs.errors import GateFailedError, IncompleteError
from store.decisions import Decision, decisions_named
from store.parquet import Store
from tasks.publish import escaped, markdown_table

EVENT = "evalflows.gate.decided"


@task(cache_policy=NO_CACHE, persist_result=False)
def announce(decisions: list[str]) -> None:
    """Emit an event a decision, and keep them as a markdown artifact called `decision`."""
    found = decisions_named(Store(), decisions)
    for one in found:
        emit_event(
            event=EVENT,
            resource={"prefect.resource.id": f"evalflows.gate.{one.gate}", "prefect.resource.name": one.gate},
            payload=payload(one),
        )
    create_markdown_artifact(key="decision", markdown=page(found), description="What the gates decided")


@task(cache_policy=NO_CACHE, persist_result=False)
def raise_if_failed(decisions: list[str], lacking: IncompleteError | None = None) -> None:
    """Raises GateFailedError with what is wrong, where a gate says FAIL; else IncompleteError where something lacks."""
    failed = [one for one in decisions_named(Store(), decisions) if one.conclusion == "FAIL"]
    if failed:
        raise GateFailedError("; ".join(f"{one.title}: FAIL: {one.summary}" for one in failed), decisions)
    if lacking is not None:
        raise IncompleteError(str(lacking), lacking.experiments, decisions)


def payload(one: Decision) -> dict[str, object]:
    """What an automation may want to know of a decision."""
    return {
        "decision_id": one.decision_id,
        "gate": one.gate,
        "conclusion": one.conclusion,
        "summary": one.summary,
        "candidate": one.candidate,
        "candidate_experiment_id": one.candidate_experiment_id,
        "baseline": one.baseline,
        "baseline_experiment_id": one.baseline_experiment_id,
        "broken": [rule["metric"] for rule in one.rules if rule["outcome"] == "broken"],
        "open": [rule["metric"] for rule in one.rules if rule["outcome"] == "open"],
    }


def page(decisions: Sequence[Decision]) -> str:
    """The decisions as markdown: each with its rules, and what differed between the two sides."""
    parts = []
    for one in decisions:
        rules = [(rule["outcome"], rule["rule"].replace("_", " "), rule["text"]) for rule in one.rules]
        table = markdown_table(("", "rule", ""), rules)
        notes = "\n".join(f"- {escaped(note)}" for note in one.notes)
        said = f"## {one.conclusion}\n\n{escaped(one.title)}"
        parts.append(
            "\n\n".join(part for part in (said, table, notes, f"`evalflows explain {one.decision_id}`") if part)
        )
    return "\n\n".join(parts)
