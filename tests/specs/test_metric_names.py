"""Names of metrics that are computed from repetitions, and of slices of metrics."""

from evalflows.specs.gate import GateSpec
from evalflows.specs.metric_names import SlicedMetric, base_metric, is_pass_k, metric_of, pass_k_name, sliced_metric
from evalflows.store.sql import connect

NAMES = {
    "right pass@2": "right",
    "right pass^10": "right",
    "a b pass@1": "a b",
    "right": "right",
    "my passes": "my passes",
    "right pass@": "right pass@",
    "right pass@2x": "right pass@2x",
    "rightpass@2": "rightpass@2",
}


def test_the_base_of_a_name_is_the_same_in_python_and_in_sql() -> None:
    with connect() as catalog:
        for name, base in NAMES.items():
            assert (base_metric(name), is_pass_k(name)) == (base, name != base)
            assert catalog.execute("select base_metric(?)", [name]).fetchall() == [(base,)]
    assert pass_k_name("right", "pass@", 2) == "right pass@2"


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


def test_a_slice_is_read_from_a_name_and_makes_it_again_and_other_names_are_whole_metrics() -> None:
    for name, parts in SLICED.items():
        found = sliced_metric(name)
        assert found == SlicedMetric(*parts) and found.name == name
        assert (metric_of(name), found.slice) == (parts[0], f"{parts[1]}={parts[2]}")
    for name in WHOLE:
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
