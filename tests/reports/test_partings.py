"""Where two conversations part."""

import json
from typing import Any

from evalflows.reports.example_detail import RunDetail
from evalflows.reports.partings import partings_of


def detail(owner: str, outputs: Any, repetition: int = 0) -> RunDetail:
    fields: dict[str, Any] = dict.fromkeys(RunDetail.__dataclass_fields__)
    text = None if outputs is None else json.dumps(outputs)
    return RunDetail(
        **fields | {"run_id": f"{owner}{repetition}", "experiment_id": owner, "repetition": repetition, "outputs": text}
    )


def talk(*said: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text} for text in said]} | fields


def test_conversations_are_alike_up_to_the_turn_where_they_part() -> None:
    old = talk("a", "b", "c", state={"orders": {"A1": {"status": "paid"}, "B2": 1}})
    found = partings_of(
        [
            detail("base", old),
            detail("one", talk("a", "b", "d", state={"orders": {"A1": {"status": "refunded"}, "B2": 1}})),
            detail("two", talk("a", "x")),
            detail("three", {"answer": "x"}),
            detail("four", None),
            detail("one", talk("a"), repetition=1),
        ],
        "base",
    )
    assert {run: parting.n_alike for run, parting in found.items()} == {"one0": 2, "two0": 1, "base0": 1}
    assert found["one0"].state == ["orders.A1.status: 'paid' → 'refunded'"]
    assert found["two0"].state == []
