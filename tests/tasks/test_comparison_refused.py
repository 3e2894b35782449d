"""Comparisons that are refused before anything is called, and how experiments are found."""

from typing import Any

from comparing import keep_score, longer, refused, three, two
from matched import asked, experiment, named, spec_of

from evalflows.evaluators.views import RunView
from evalflows.tasks.compare import check_and_resolve


def item(inputs: dict[str, Any], outputs: dict[str, Any], run: RunView) -> bool:
    """Judges one answer."""
    return True


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"evaluators": ["exact_match"]}, "evaluator 'exact_match': "),
    ({"evaluators": [item]}, "evaluator 'item': asks for 'run', wanted any of inputs, outputs, "),
    ({"evaluators": [{**named(longer), "name": "answer_length"}]}, "the experiments have an item metric of this name"),
    ({"evaluators": [{**named(longer), "name": "quality"}]}, "wanted another name, such as pairwise_quality"),
    ({"evaluators": [{**named(longer), "args": {"x": 1}}]}, "evaluator 'longer': got the setting 'x'"),
    ({"evaluators": ["pairwise_preferenc"]}, "pairwise_preference"),
    ({"evaluators": ["nowhere:judge"]}, "nowhere"),
    ({"experiments": ["old"] * 2}, "experiments: got old, old, which is one experiment, wanted at least two"),
    ({"experiments": ["old", "newest"]}, "experiment 'newest': not in "),
    ({"baseline": "other"}, "experiment 'other': not in "),
    ({"baseline": "third"}, "baseline: got 'third', wanted one of old, new"),
    ({"experiments": ["old", "third"]}, "experiments: old and third share no example (no ids in common)"),
    ({"slice_by": ["metadata.topc"]}, "no example has 'metadata.topc', wanted split, or a path such as metadata.topic"),
    ({"resume": "cmp-none"}, "resume: got 'cmp-none', wanted the id of a comparison in "),
]
"""Of two experiments that share their examples, and the words by which it is refused."""


def test_what_cannot_work_is_refused_in_one_line_with_nothing_written() -> None:
    old, _ = two(metadata={"topic": "x"})
    keep_score(old, "quality")
    experiment("third", {"z": "x"}, place=2)
    for changes, message in REFUSED:
        fields = {"experiments": ("old", "new"), "evaluators": [longer]} | changes
        assert message in refused(fields.pop("experiments"), *fields.pop("evaluators"), **fields)
    assert asked("select count(*) from comparison_sets") == [(0,)]


def test_the_same_id_with_other_inputs_is_no_shared_example() -> None:
    old = experiment("old", {"a": "x"}, place=0)
    new = experiment("new", {"a": "x"}, place=1, rows=[{"id": "a", "inputs": {"question": "other?"}}])
    assert "share no example (1 with the same id but different inputs)" in refused((old, new), longer)


def test_experiments_are_found_by_name_id_and_run_group() -> None:
    a, b, c = three()
    spec = check_and_resolve(spec_of(["group of b", "a", c, "b"], longer, baseline="c")).prepared.spec
    assert (spec.experiments, spec.baseline, spec.name) == ([b, a, c], c, "b vs a vs c")
