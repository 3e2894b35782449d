"""Play one conversation of a spec, from a program or the command line. Nothing of it is stored but its paid calls."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from evalflows.analysis.trace_datasets import loaded_dataset
from evalflows.engine.play import Tell, play_conversation
from evalflows.evaluators.score import Judgement
from evalflows.llm.ledger import Usage
from evalflows.specs.dialogue import STATE
from evalflows.specs.errors import CallError, InputError, names_to_choose
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.frozen import dataclass
from evalflows.specs.tool_changes import difference_lines
from evalflows.store.records import from_json
from evalflows.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A conversation that was played."""

    outputs: Mapping[str, Any]
    spent: Usage
    changes: list[str]
    """In lines: what the tools changed in the state of the world."""
    scores: Sequence[Judgement]
    """Of the evaluators that call no model."""
    invalid: CallError | None
    """Why it does not count: the user did not keep to its goal."""


def play(
    spec: ExperimentSpec, example_id: str, target: str | None, tell: Tell, says: Callable[[], str | None] | None = None
) -> Played:
    """Play a conversation on an example of the spec's dataset, as `play_conversation` does.

    Raise InputError for an example that the dataset does not have; final examples are not played.
    """
    examples = {row.example_id: row for row in loaded_dataset(Store(), spec.dataset, final=False).selected}
    if example_id not in examples:
        wanted = names_to_choose(example_id, examples)
        raise InputError(
            f"example: got {example_id!r}, which is not among the {len(examples)} examples, wanted {wanted}"
        )
    example = examples[example_id]
    answer, invalid, spent, scores = play_conversation(spec, target, example, tell, says)
    stored = (from_json(text) or {} for text in (example.inputs, example.metadata))
    before: dict[str, Any] = next((fields[STATE] for fields in stored if STATE in fields), {})
    after: dict[str, Any] = answer.outputs.get(STATE) or {}
    shared = before.keys() & after.keys()
    changes = difference_lines({name: before[name] for name in shared}, {name: after[name] for name in shared})
    return Played(outputs=answer.outputs, spent=spent, changes=changes, invalid=invalid, scores=scores)
