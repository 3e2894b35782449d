"""The prompts that ship: each is used, asks for nothing that is not offered, and leaves out nothing that is needed."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

import evalflows
from evalflows import evaluators
from evalflows.specs.reference import version_of

ASKS_FOR = {
    "criteria": {"inputs", "outputs", "reference_outputs", "criteria"},
    "faithfulness": {"inputs", "outputs", "context"},
    "answer_relevance": {"inputs", "outputs"},
    "context_precision": {"inputs", "reference_outputs", "contexts"},
    "context_recall": {"inputs", "reference_outputs", "context"},
    "summary_coverage": {"source", "outputs", "most"},
    "toxicity": {"inputs", "outputs"},
    "refusal": {"inputs", "outputs"},
    "instruction_following": {"inputs", "outputs", "instructions"},
}


PROMPTS = {name: name for name in ASKS_FOR} | {
    "correctness": "correctness",
    "rubric": "rubric",
    "trajectory": "trajectory",
    "turn_quality": "turns",
    "conversation_quality": "conversation",
    "turn_errors": "turn_errors",
    "context_use": "context_use",
    "role_adherence": "role_adherence",
}


def versions(monkeypatch: pytest.MonkeyPatch, *changed: str) -> dict[str, str]:
    """The versions of the evaluators when text is appended to some of the built-in prompts."""
    read = Path.read_text

    def other(path: Path, *arguments: Any, **settings: Any) -> str:
        more = "zeal: Is it eager?\n" if path.stem == "criteria_by_name" else " "
        return read(path, *arguments, **settings) + (more if path.stem in changed else "")

    loaded = [module for module in sys.modules if f"{module}.".startswith("evalflows.evaluators.")]
    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_text", other)
        patched.setattr(evalflows, "evaluators", evaluators)  # the import below replaces it
        for module in loaded:
            patched.delitem(sys.modules, module)
        again = importlib.import_module("evalflows.evaluators")
        return {name: version_of(getattr(again, name)) for name in PROMPTS}


def test_another_text_of_a_shipped_prompt_is_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    as_they_are = {name: version_of(getattr(evaluators, name)) for name in PROMPTS}
    assert versions(monkeypatch) == as_they_are
    first, second = [*PROMPTS][::2], [*PROMPTS][1::2]
    for names, changed in (
        (first, [PROMPTS[name] for name in first]),
        ([*second, "criteria"], [*(PROMPTS[name] for name in second), "criteria_by_name"]),
    ):
        found = versions(monkeypatch, *changed)
        assert {name for name in PROMPTS if found[name] != as_they_are[name]} == {*names}
