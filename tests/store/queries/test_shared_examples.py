"""Only what all experiments were asked, in the same words, is compared; latencies of the same rounds."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from matched import experiment, rows_of

from evalflows.engine.pairs import experiments_of
from evalflows.store.queries.shared_examples import SharedExamples, shared_examples, shared_rounds
from evalflows.store.store import Store


def asked(place: int, *examples: str, rows: list[dict[str, Any]] | None = None) -> str:
    return experiment(f"e{place}", dict.fromkeys(examples, "yes"), place=place, rows=rows or [])


def shared(*experiments: str) -> SharedExamples:
    store = Store()
    return shared_examples(store, experiments_of(store, experiments))


def ids(found: SharedExamples) -> list[str]:
    return [example.example_id for example in found.examples]


def test_those_that_one_does_not_have_are_absent_whichever_it_is() -> None:
    few, many = asked(0, "a", "b"), asked(1, "a", "b", "c", "d")
    for order in ((few, many), (many, few)):
        found = shared(*order)
        assert (ids(found), found.absent, found.changed) == (["a", "b"], 2, 0)


def test_of_several_experiments_every_one_must_have_it() -> None:
    found = shared(asked(0, "a", "b", "c"), asked(1, "b", "c", "d"), asked(2, "c", "b", "e"))
    assert (sorted(ids(found)), found.absent, found.left_out) == (["b", "c"], 3, 3)


def test_the_same_id_with_other_inputs_is_another_question() -> None:
    changed = [{"id": "b", "inputs": {"question": "something else?"}}]
    found = shared(asked(0, "a", "b"), asked(1, "a", "b", rows=[*rows_of(["a"]), *changed]))
    assert (ids(found), found.absent, found.changed, found.left_out) == (["a"], 0, 1, 1)


def test_what_else_has_changed_of_an_example_does_not_count() -> None:
    changes: list[dict[str, Any]] = [{"reference_outputs": "new"}, {"metadata": {"x": 1}}, {"split": "test"}]
    for number, only in enumerate(changes):
        places = 2 * number, 2 * number + 1
        found = shared(asked(places[0], "a", "b"), asked(places[1], "a", "b", rows=rows_of(["a", "b"], **only)))
        assert (ids(found), found.left_out) == (["a", "b"], 0)
        first = found.examples[0]
        assert (first.reference_outputs, first.metadata, first.split) == (None, None, None), "as the first one froze it"


def test_answers_of_other_rounds_from_the_ledger_and_of_the_first_round_are_not_compared(
    store: Store, make: Callable[..., Any]
) -> None:
    of_both = {"run_group": "g", "snapshot_id": "s", "repetitions": 1, "target_kind": "http", "n_examples": 6}
    owners = [make("experiments", experiment_id=name, **of_both) for name in ("ours", "theirs")]
    examples = [make("examples", snapshot_id="s", example_id=f"e{i}", position=i) for i in range(6)]
    store.append("examples", "s", "p", examples)
    for other, row in zip((4, 2), owners, strict=True):
        outputs = []
        for i in range(6):
            at = None if i == other else datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=i)
            of = {"run_id": f"{row.experiment_id}-{i}", "experiment_id": row.experiment_id, "example_id": f"e{i}"}
            outputs.append(make("outputs", **of, repetition=0, calls_cached=int(i == 5), round_at=at))
        store.append("outputs", row.experiment_id, "p", outputs)
    found = shared_rounds(store, *owners)
    assert found.together.tolist() == [i not in (2, 4, 5) for i in range(6)]
    assert found.from_ledger.tolist() == [i == 5 for i in range(6)]
    assert found.warm_up.tolist() == [i == 0 for i in range(6)]
