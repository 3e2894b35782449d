"""Notes on what judges are shown, before the first of them is paid: answers of several fields that they see whole, and
contexts that reach a judge of correctness."""

from collections.abc import Iterator, Mapping, Sequence
from inspect import signature
from typing import Any

from evalflows.engine.running import RunnableEvaluator
from evalflows.engine.spec_evaluators import is_ours
from evalflows.specs.placeholders import placeholders

SPELLINGS = {
    "inputs": ("inputs", "input"),
    "outputs": ("outputs", "output", "first", "second"),
    "reference_outputs": ("reference_outputs", "expected_output"),
}
"""The arguments that the notes are about, and what prompts call them."""

SHOWN = frozenset(SPELLINGS)

CONTEXTS = frozenset(
    ("context", "contexts", "retrieved_context", "retrieved_contexts", "documents", "retrieved_documents", "passages")
)
"""Names of fields that hold what was retrieved."""


def notes_on(judges: Sequence[RunnableEvaluator], available: Mapping[str, Any]) -> Iterator[str]:
    """Yield notes on what our judges are shown of a subject with these arguments."""
    shown = {judge.bound.name: fields_shown(judge, available) for judge in judges if is_ours(judge.spec)}
    whole: dict[tuple[str, ...], list[str]] = {}  # names of judges by the fields of the answer
    for name, fields in shown.items():
        if len(fields["outputs"]) > 1:
            whole.setdefault(fields["outputs"], []).append(name)
    for answer, names in whole.items():
        key = next((field for field in answer if field not in CONTEXTS), answer[0])
        yield (
            f"the answers have several fields ({', '.join(answer)}), all shown as JSON to {', '.join(names)}; to show "
            f"one, set args: {{key: {key}}}"
        )
    for name in [judge.bound.name for judge in judges if judge.spec.use == "correctness"]:
        found = [f"{side}.{field}" for side, fields in shown[name].items() for field in fields if field in CONTEXTS]
        if found:
            yield (
                f"{name}: the judge sees {' and '.join(found)}, and may judge by it in place of the reference; set "
                "`key`, use a `prompt` without {inputs}, or keep contexts in the metadata"
            )


def fields_shown(judge: RunnableEvaluator, available: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return by argument the fields that a judge is shown as JSON; none of an argument of which it sees one value."""
    settings = judge.bound.settings
    takes = signature(judge.bound.function).parameters
    prompt = settings.get("prompt") or (takes["prompt"].default if "prompt" in takes else None)
    asked = placeholders(prompt) if isinstance(prompt, str) else SHOWN
    context = settings.get("context") or (takes["context"].default if "context" in takes else None)
    shown = {}
    for argument, names in SPELLINGS.items():
        value = available.get(argument)
        value = value[0] if isinstance(value, list) else value  # of a pair
        has_key = argument != "inputs" and ("key" not in takes or settings.get("key") is not None)
        fields = [*value] if isinstance(value, dict) and not has_key and not asked.isdisjoint(names) else []
        fields = [field for field in fields if not f"{context}.".startswith(f"{argument}.{field}.")]
        shown[argument] = tuple(fields) if len(fields) > 1 else ()
    return shown
