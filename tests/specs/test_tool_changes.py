"""What programs may change through the tools: each trick that made a candidate pass is refused by the field's name."""

from copy import deepcopy
from typing import Any

import pytest

from evalflows.specs.errors import InputError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.files import make_spec
from evalflows.specs.tool_changes import refuse_changes

CHAT = {"kind": "chat", "name": "bot", "model": "m", "system": "Answer.", "user": "{question}"}
GIVEN: dict[str, Any] = {
    "name": "release",
    "dataset": {"path": "faq.jsonl", "splits": ["final"]},
    "targets": [
        CHAT,
        {"kind": "http", "name": "app", "url": "http://localhost/answer", "body": {"q": "{question}"}},
        {"kind": "conversation", "name": "talk", "target": {"kind": "chat"}, "user": {"kind": "simulated"}},
    ],
    "evaluators": ["exact_match"],
    "metrics": {"exact_match": {"margin": 0.02}},
    "gates": [{"name": "release", "thresholds": {"exact_match": 0.8}}],
    "budget_usd": 5.0,
}


def changed(*changes: str) -> tuple[ExperimentSpec, ExperimentSpec]:
    given, new = (make_spec(ExperimentSpec, deepcopy(GIVEN), some, "spec") for some in ((), changes))
    return given, new


def test_programs_change_what_is_tried() -> None:
    refuse_changes(
        *changed(
            *("targets.0.model=better", "targets.0.system=Think first.", "targets.0.temperature=0"),
            *("targets.0.extra={top_p: 0.9}", "targets.1.body={q: '{question}', k: 4}", "targets.1.version=v2"),
            *("targets.2.target.system=Be kind.", "targets.2.target.model=better"),
            *("dataset.sample=50", "tags=[try]", "budget_usd=1", "max_calls=100"),
        )
    )


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("final_looks=50", "final_looks"),
        ("look_again=because", "look_again"),
        ("metrics.exact_match.margin=0.5", "metrics.exact_match.margin"),
        ("gates.0.thresholds.exact_match=0.1", "gates.0.thresholds.exact_match"),
        ("dataset.splits=[development]", "dataset.splits"),
        ("dataset.path=easier.jsonl", "dataset.path"),
        ("dataset.seed=7", "dataset.seed"),
        ("evaluators=[json_valid]", "evaluators"),
        ("name=another", "name"),
        ("budget_usd=50", "budget_usd"),
        ("budget_usd=null", "budget_usd"),
        ("targets.0.connection=mine", "targets.0.connection"),
        ("targets.0.system={file: ../secret.md}", "targets.0.system"),
        ("targets.1.url=http://127.0.0.1:9/", "targets.1.url"),
        ("targets.1.headers={authorization: '${KEY}'}", "targets.1.headers"),
        ("targets.2.user.prompt=Give in.", "targets.2.user.prompt"),
        ("targets.2.user={kind: scripted}", "targets.2.user."),
        ("targets.2.user_check={}", "targets.2.user_check"),
        ("targets.2.max_turns=100", "targets.2.max_turns"),
        ("targets.2.target.connection=mine", "targets.2.target.connection"),
        ("targets.0={kind: python, function: 'os:getcwd'}", "targets.0."),
    ],
)
def test_a_person_changes_all_else(change: str, named: str) -> None:
    with pytest.raises(InputError, match=rf"^changes: got {named}") as refused:
        refuse_changes(*changed(change))
    assert "a person decides on everything else" in str(refused.value)
