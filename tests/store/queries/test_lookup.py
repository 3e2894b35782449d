"""An experiment is found by its id, the beginning of one, its run group, or its name; a comparison likewise."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from evalflows.specs.errors import InputError
from evalflows.store.parquet import Store
from evalflows.store.queries.lookup import find_comparison, find_experiments

Make = Callable[..., Any]
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory, make: Make) -> Store:
    """demo twice, the later one under way; two targets of one start, the first begun first."""
    store = Store(tmp_path_factory.mktemp("known"))
    for hours, identity, name, group in (
        (0, "exp-00aa", "demo", "group-1"),
        (1, "exp-00ab", "demo", "group-2"),
        (2, "exp-01aa", "both-one", "group-3"),
        (3, "exp-01ab", "both-two", "group-3"),
    ):
        row = make(
            "experiments",
            experiment_id=identity,
            name=name,
            run_group=group,
            started_at=START + timedelta(hours=hours),
        )
        store.append("experiments", identity, "start", [row])
        if identity != "exp-00ab":
            store.seal(identity, ["experiments"])
    return store


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("exp-00aa", ["exp-00aa"]),
        ("exp-00ab", ["exp-00ab"]),
        ("exp-01a", None),
        ("exp-01ab", ["exp-01ab"]),
        ("group-3", ["exp-01aa", "exp-01ab"]),
        ("group-1", ["exp-00aa"]),
        ("demo", ["exp-00ab"]),
        ("both-one", ["exp-01aa"]),
        ("demo~0", ["exp-00ab"]),
        ("demo~1", ["exp-00aa"]),
    ],
)
def test_a_reference_means_an_id_a_group_or_the_newest_of_a_name(
    known: Store, reference: str, found: list[str] | None
) -> None:
    if found is None:
        with pytest.raises(InputError) as caught:
            find_experiments(known, reference)
        assert str(caught.value) == f"experiment {reference!r}: got the prefix of 2 ids, wanted a longer one"
    else:
        assert find_experiments(known, reference) == found


def test_the_beginning_of_just_one_id_is_enough(store: Store, make: Make) -> None:
    for identity in ("exp-00aa", "exp-1zzz"):
        store.append("experiments", identity, "start", [make("experiments", experiment_id=identity)])
    assert find_experiments(store, "exp-1") == ["exp-1zzz"]


def test_a_name_goes_before_the_beginning_of_an_id(store: Store, make: Make) -> None:
    for identity, name in (("exp-00aa", "demo"), ("exp-9", "exp-00a")):
        store.append("experiments", identity, "start", [make("experiments", experiment_id=identity, name=name)])
    assert find_experiments(store, "exp-00a") == ["exp-9"]


def test_an_unknown_one_lists_the_names_newest_first_each_once(known: Store) -> None:
    with pytest.raises(InputError) as caught:
        find_experiments(known, "nonsense")
    root = known.layout.root
    assert str(caught.value) == (
        f"experiment 'nonsense': not in {root}, wanted an id or one of: both-two, both-one, demo"
    )


def test_of_many_names_only_ten_are_listed(store: Store, make: Make) -> None:
    for i in range(11):
        store.publish("experiments", f"exp-{i}", [make("experiments", experiment_id=f"exp-{i}", name=f"name-{i}")])
    with pytest.raises(InputError) as caught:
        find_experiments(store, "nonsense")
    assert str(caught.value).count("name-") == 10
    assert str(caught.value).endswith(", …")


def test_an_empty_store_says_so(store: Store) -> None:
    with pytest.raises(InputError) as caught:
        find_experiments(store, "demo")
    assert str(caught.value) == f"experiment 'demo': not in {store.layout.root}, which is empty"


def test_a_reference_with_a_quote_is_only_a_text(known: Store) -> None:
    with pytest.raises(InputError, match="not in"):
        find_experiments(known, "' or 1=1 --")


# Comparisons


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory, make: Make) -> Store:
    """tournament twice, the later one under way; one whose name begins like an id."""
    store = Store(tmp_path_factory.mktemp("compared"))
    for hours, identity, name in (
        (1, "cmp-00ab", "tournament"),
        (0, "cmp-00aa", "tournament"),
        (2, "cmp-01aa", "cmp-00"),
    ):
        started = START + timedelta(hours=hours)
        row = make("comparison_sets", comparison_id=identity, name=name, started_at=started)
        store.append("comparison_sets", identity, "start", [row])
        if identity != "cmp-00ab":
            store.seal(identity, ["comparison_sets"])
    return store


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("cmp-00aa", "cmp-00aa"),
        ("cmp-00ab", "cmp-00ab"),
        ("cmp-01", "cmp-01aa"),
        ("tournament", "cmp-00ab"),
        ("cmp-00", "cmp-01aa"),
    ],
)
def test_a_comparison_is_found_by_its_id_or_as_the_newest_of_a_name(
    compared: Store, reference: str, found: str
) -> None:
    assert find_comparison(compared, reference) == found


def test_the_beginning_of_two_comparisons_is_not_enough(compared: Store) -> None:
    with pytest.raises(InputError) as caught:
        find_comparison(compared, "cmp-0")
    assert str(caught.value) == "comparison 'cmp-0': got the prefix of 3 ids, wanted a longer one"


def test_an_unknown_comparison_lists_the_names_newest_first(compared: Store) -> None:
    with pytest.raises(InputError) as caught:
        find_comparison(compared, "nonsense")
    root = compared.layout.root
    assert str(caught.value) == f"comparison 'nonsense': not in {root}, wanted an id or one of: cmp-00, tournament"


def test_a_store_without_comparisons_says_so(known: Store) -> None:
    with pytest.raises(InputError) as caught:
        find_comparison(known, "demo")
    assert str(caught.value) == f"comparison 'demo': not in {known.layout.root}, which has no comparison"


def test_a_run_before_all_of_a_name_is_refused(known: Store) -> None:
    with pytest.raises(InputError, match=r"experiment 'demo~2': there are only 2 runs named 'demo', wanted "):
        find_experiments(known, "demo~2")
    with pytest.raises(InputError, match=r"experiment 'none~1': not in .*, wanted an id or one of"):
        find_experiments(known, "none~1")
