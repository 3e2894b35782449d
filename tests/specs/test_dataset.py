"""What a dataset spec may say."""

from typing import Any

import pytest
from pydantic import ValidationError

from evalflows.specs.dataset import DatasetSpec
from evalflows.specs.errors import first_problem

SOURCES: dict[str, Any] = {"path": "rows.csv", "function": "app:rows", "snapshot": "snap-1", "rows": [{"inputs": 1}]}


def refusal(content: object) -> str:
    """The one line that a dataset is refused with."""
    with pytest.raises(ValidationError) as caught:
        DatasetSpec.model_validate(content)
    text = first_problem(caught.value, "dataset")
    assert "\n" not in text
    return text


@pytest.mark.parametrize("one", SOURCES)
@pytest.mark.parametrize("other", SOURCES)
def test_two_sources_are_refused(one: str, other: str) -> None:
    if one < other:
        said = refusal({one: SOURCES[one], other: SOURCES[other]})
        both = " and ".join(name for name in SOURCES if name in (one, other))
        assert said == f"dataset: got {both}, wanted just one of path, function, snapshot, rows, traces"


def test_no_source_is_refused_and_production_is_one() -> None:
    spec = DatasetSpec.model_validate({"traces": {"order": "random", "limit": 5}, "name": "faq"})
    assert spec.traces is not None and (spec.traces.limit, spec.traces.order) == (5, "random")
    assert "got rows and traces" in refusal({"rows": [], "traces": {}})
    assert "order: got worst without a metric" in refusal({"traces": {"order": "worst"}})
    assert refusal({"sample": 3}).startswith("dataset: got no source, wanted one of path, function, name, snapshot")


@pytest.mark.parametrize(
    ("change", "beginning"),
    [
        ({"file": "rows.csv"}, "dataset: file: no such field"),
        ({"sample": 0}, "dataset: sample: Input should be greater than or equal to 1, got 0"),
        ({"sample": 1.5}, "dataset: sample: Input should be a valid integer"),
        ({"splits": [1]}, "dataset: splits.0: Input should be a valid string, got 1"),
        ({"expectations": [{"kwargs": {}}]}, "dataset: expectations.list[Expectation].0.type: Field required"),
        ({"expectations": [{"type": "x", "severity": "high"}]}, "dataset: expectations.list[Expectation].0.severity"),
        ({"expectations": [{"type": "x", "kwargs": None}]}, "dataset: expectations.list[Expectation].0.kwargs"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said_with_its_place(change: dict[str, Any], beginning: str) -> None:
    assert refusal({"path": "rows.csv"} | change).startswith(beginning)


@pytest.mark.parametrize("source", [{"snapshot": "snap-1"}, {"name": "faq"}, {"snapshot": "snap-1", "name": "faq"}])
def test_columns_of_what_is_in_the_store_are_refused(source: dict[str, str]) -> None:
    said = refusal(source | {"columns": {"inputs": "question"}})
    assert said == "dataset: columns: wanted only with path, function or rows; snapshots in the store have fixed fields"
