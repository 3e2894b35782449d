"""Names of slices of metrics, in one pattern."""

import pytest

from evalflows.specs.errors import SlicedMetric, metric_of, sliced_metric
from evalflows.specs.gate import GateSpec

SLICED = {
    "contains@split=hard": ("contains", "split", "hard"),
    "contains@cluster=a b": ("contains", "cluster", "a b"),
    "right pass@2@metadata.topic=law": ("right pass@2", "metadata.topic", "law"),
    "m@metadata.a.b=x=y@z": ("m", "metadata.a.b", "x=y@z"),
    "m@inputs.n=3": ("m", "inputs.n", "3"),
    "a@b.c@reference_outputs.yes=true": ("a@b.c", "reference_outputs.yes", "true"),
    "m@split=": ("m", "split", ""),
}
WHOLE = ("contains", "right pass@2", "precision@k=5", "m@topic=law", "@split=hard", "m@metadata=x", "m@split", "a=b")


@pytest.mark.parametrize(("name", "parts"), SLICED.items())
def test_a_slice_is_read_from_a_name_and_makes_it_again(name: str, parts: tuple[str, str, str]) -> None:
    found = sliced_metric(name)
    assert found == SlicedMetric(*parts) and found.name == name
    assert (metric_of(name), found.slice) == (parts[0], f"{parts[1]}={parts[2]}")


@pytest.mark.parametrize("name", WHOLE)
def test_other_names_are_metrics_on_all_examples(name: str) -> None:
    assert sliced_metric(name) == SlicedMetric(name)
    assert (sliced_metric(name).slice, sliced_metric(name).name) == (None, name)


def test_every_kind_of_rule_takes_slices() -> None:
    gate = GateSpec(
        non_inferiority={"a@split=x": 0.1},
        superiority=["a@split=y"],  # type: ignore[arg-type]
        thresholds={"a@split=z": 0.5},
        confident_thresholds={"a": 0.5},
    )
    assert gate.metrics == ["a@split=x", "a@split=y", "a@split=z", "a"]
