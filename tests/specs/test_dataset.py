"""What a dataset spec may say."""

from typing import Any

import pytest
from pydantic import ValidationError

from evalflows.specs.dataset import DatasetSpec, Expectation
from evalflows.specs.errors import first_problem

SOURCES: dict[str, Any] = {"path": "rows.csv", "function": "app:rows", "snapshot": "snap-1", "rows": [{"inputs": 1}]}


def refusal(content: object) -> str:
    """The one line that a dataset is refused with."""
    with pytest.raises(ValidationError) as caught:
        DatasetSpec.model_validate(content)
    text = first_problem(caught.value, "dataset")
    assert "\n" not in text
    return text


@pytest.mark.parametrize("source", SOURCES)
def test_one_source_will_do_with_a_name_or_without(source: str) -> None:
    spec = DatasetSpec.model_validate({source: SOURCES[source]})
    assert (getattr(spec, source), spec.name) == (SOURCES[source], None)
    assert DatasetSpec.model_validate({source: SOURCES[source], "name": "faq"}).name == "faq"


def test_a_name_alone_is_a_source() -> None:
    assert DatasetSpec(name="faq").name == "faq"


def test_all_else_goes_without_saying() -> None:
    spec = DatasetSpec(name="faq")
    assert (spec.columns, spec.splits, spec.sample, spec.seed, spec.expectations) == (None, None, None, 0, None)


@pytest.mark.parametrize("one", SOURCES)
@pytest.mark.parametrize("other", SOURCES)
def test_two_sources_are_refused(one: str, other: str) -> None:
    if one < other:
        said = refusal({one: SOURCES[one], other: SOURCES[other]})
        both = " and ".join(name for name in SOURCES if name in (one, other))
        assert said == f"dataset: got {both}, wanted just one of path, function, snapshot, rows, traces"


def test_production_is_a_source() -> None:
    spec = DatasetSpec.model_validate({"traces": {"order": "random", "limit": 5}, "name": "faq"})
    assert spec.traces is not None and (spec.traces.limit, spec.traces.order) == (5, "random")
    assert "got rows and traces" in refusal({"rows": [], "traces": {}})
    assert "order: got worst without a metric" in refusal({"traces": {"order": "worst"}})


def test_no_source_is_refused() -> None:
    assert refusal({"sample": 3}).startswith("dataset: got no source, wanted one of path, function, name, snapshot")


def test_no_rows_at_all_are_a_source_that_a_later_step_refuses() -> None:
    assert DatasetSpec(rows=[]).rows == []
    assert "got path and rows" in refusal({"rows": [], "path": "rows.csv"})


@pytest.mark.parametrize("source", ["path", "function", "rows"])
def test_columns_may_be_said_of_what_is_read(source: str) -> None:
    spec = DatasetSpec.model_validate({source: SOURCES[source], "columns": {"inputs": "question"}})
    assert spec.columns is not None
    assert spec.columns.inputs == {"question": "question"}


@pytest.mark.parametrize("source", [{"snapshot": "snap-1"}, {"name": "faq"}, {"snapshot": "snap-1", "name": "faq"}])
def test_columns_of_what_is_in_the_store_are_refused(source: dict[str, str]) -> None:
    said = refusal(source | {"columns": {"inputs": "question"}})
    assert said == "dataset: columns: wanted only with path, function or rows; snapshots in the store have fixed fields"


@pytest.mark.parametrize(
    ("change", "beginning"),
    [
        ({"file": "rows.csv"}, "dataset: file: no such field"),
        ({"sample": 0}, "dataset: sample: Input should be greater than or equal to 1, got 0"),
        ({"sample": -1}, "dataset: sample: Input should be greater than or equal to 1, got -1"),
        ({"sample": 1.5}, "dataset: sample: Input should be a valid integer"),
        ({"splits": "test"}, "dataset: splits: Input should be a valid list, got 'test'"),
        ({"splits": [1]}, "dataset: splits.0: Input should be a valid string, got 1"),
        ({"seed": "x"}, "dataset: seed: Input should be a valid integer"),
        ({"columns": {}}, "dataset: columns.inputs: Field required"),
        ({"columns": "question"}, "dataset: columns: Input should be a valid dictionary"),
        ({"expectations": 7}, "dataset: expectations"),
        ({"expectations": [{"kwargs": {}}]}, "dataset: expectations.list[Expectation].0.type: Field required"),
        ({"expectations": [{"type": "x", "severity": "high"}]}, "dataset: expectations.list[Expectation].0.severity"),
        ({"expectations": [{"type": "x", "kwargs": None}]}, "dataset: expectations.list[Expectation].0.kwargs"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said_with_its_place(change: dict[str, Any], beginning: str) -> None:
    assert refusal({"path": "rows.csv"} | change).startswith(beginning)


@pytest.mark.parametrize("rows", ["rows.csv", [1], [["inputs", 1]], {"inputs": 1}, [None]], ids=repr)
def test_rows_are_a_list_of_mappings(rows: object) -> None:
    assert refusal({"rows": rows}).startswith("dataset: rows")


def test_an_expectation_is_critical_unless_it_says_otherwise() -> None:
    assert Expectation(type="x").severity == "critical"
    assert Expectation(type="x", severity="warning").severity == "warning"


def test_what_great_expectations_keeps_beside_an_expectation_is_passed_over() -> None:
    kept = {"id": "1", "meta": {"notes": "…"}, "notes": None, "rendered_content": [], "type": "x", "kwargs": {"a": 1}}
    assert Expectation.model_validate(kept) == Expectation(type="x", kwargs={"a": 1})


def test_expectations_may_be_a_list_or_the_path_of_a_suite() -> None:
    assert DatasetSpec(name="faq", expectations="suite.json").expectations == "suite.json"
    listed = DatasetSpec.model_validate({"name": "faq", "expectations": [{"type": "x"}]}).expectations
    assert listed == [Expectation(type="x")]


def test_a_dataset_comes_back_from_json_as_it_was() -> None:
    spec = DatasetSpec.model_validate(
        {
            "rows": [{"inputs": {"q": [1, None]}}],
            "name": "faq",
            "columns": {"inputs": "q", "metadata": ["a.b"]},
            "splits": ["test", ""],
            "sample": 3,
            "seed": -1,
            "expectations": [{"type": "x", "kwargs": {"value_set": [1, "a", None]}, "severity": "info"}],
        }
    )
    assert DatasetSpec.model_validate_json(spec.model_dump_json()) == spec


def test_a_dataset_does_not_change() -> None:
    spec = DatasetSpec(name="faq")
    with pytest.raises(ValidationError):
        spec.name = "other"  # type: ignore[misc]
