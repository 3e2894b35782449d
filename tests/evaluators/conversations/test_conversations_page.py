"""What docs/conversations.md says is so."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from evalflows.evaluators import conversations
from evalflows.evaluators.call import OFFERED
from evalflows.specs.experiment import ExperimentSpec
from evalflows.store.ingest.datasets import load_dataset
from evalflows.store.parquet import Store

PAGE = (Path(__file__).parents[3] / "docs" / "conversations.md").read_text(encoding="utf-8")
EVALUATORS = ("turn_quality", "turn_errors", "context_use", "conversation_quality")


@pytest.mark.parametrize("name", EVALUATORS)
def test_each_evaluator_is_listed_with_its_settings_and_what_it_cannot_see(name: str) -> None:
    function: Any = getattr(conversations, name)
    listed = next(part for part in re.split(r"^- |^All are", PAGE, flags=re.M) if part.startswith(f"`{name}`"))
    settings = [one for one in inspect.signature(function).parameters if one not in OFFERED["item"]]
    assert [one for one in settings if f"`{one}`" not in listed] == []
    assert "Cannot see" in " ".join(listed.split())
    assert "cannot see" in " ".join((inspect.getdoc(function) or "").split())


def test_the_spec_that_is_shown_is_one_and_gives_an_example_a_turn() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.S)
    spec = ExperimentSpec.model_validate(yaml.safe_load(block))
    examples = load_dataset(Store(), spec.dataset).selected
    assert [example.example_id for example in examples] == ["talk-1#1", "talk-1#2", "talk-2#1", "talk-2#2"]
    assert {evaluator.use for evaluator in spec.evaluators} <= {*EVALUATORS, "length_between"}
