"""Labels that are given one at a time: durable, none lost when several people give some, and few files."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from labelled import judged
from matched import asked

from evalflows.specs.errors import InputError
from evalflows.store.labels import add_label
from evalflows.store.observations import FAN
from evalflows.store.store import Store

NAMES = [f"q{number}" for number in range(20)]


@pytest.fixture
def owner() -> str:
    return judged("small", dict.fromkeys(NAMES, 1.0))


def row(owner: str, example: str, by: str, value: str = "yes") -> dict[str, str]:
    return {"experiment": owner, "example_id": example, "metric": "correct", "labeller": by, "value": value}


@pytest.mark.slow
def test_labels_of_several_people_at_once_are_all_kept(owner: str) -> None:
    given = [(by, name) for by in ("ann", "bob", "cat") for name in NAMES]
    with ThreadPoolExecutor(6) as threads:
        added = [threads.submit(add_label, Store(), by, row(owner, name, by)) for by, name in given]
        assert all(one.result().is_new for one in added)
    assert sorted(asked("select labeller, example_id from labels")) == sorted(given)


@pytest.mark.slow
def test_small_parts_are_merged_as_they_come(owner: str) -> None:
    store = Store()
    for name in NAMES:
        add_label(store, "ann", row(owner, name, "ann"))
        assert asked("select count(*) from labels") == [(NAMES.index(name) + 1,)]
    assert len(store.open_parts("labels", "ann")) < FAN


def test_a_label_has_the_columns_of_an_imported_one(owner: str) -> None:
    label = add_label(Store(), "ann", row(owner, "q3", "ann") | {"comment": "well", "drawn": "fair"}).label
    assert (label.experiment_id, label.example_id, label.metric, label.value) == (owner, "q3", "correct", 1.0)
    assert (label.source, label.labeller, label.comment) == ("review", "ann", "well")
    assert Store().read("labels", "ann") == [label]


def test_a_later_label_counts_whatever_the_clock_says(owner: str) -> None:
    for value in ("yes", "no", "yes", "no"):
        add_label(Store(), "ann", row(owner, "q0", "ann", value))
    assert asked("select value from current_labels") == [(0.0,)]


def test_nothing_is_stored_of_an_invalid_label(owner: str) -> None:
    for wrong, message in (
        ({"value": "nan"}, "value: got 'nan'"),
        ({"example_id": "q99"}, "example_id: got 'q99'"),
        ({"value": None}, "got no label"),
        ({"drawn": "worst"}, "drawn: got 'worst'"),
    ):
        with pytest.raises(InputError, match=message):
            add_label(Store(), "ann", row(owner, "q0", "ann") | wrong)  # type: ignore[arg-type]
    assert asked("select count(*) from labels") == [(0,)]
