"""An experiment is found by its id, the beginning of one, its run group, or its name; a comparison likewise."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from evalflows.specs.errors import InputError
from evalflows.store.queries.lookup import find_comparison, find_experiments
from evalflows.store.store import Store

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
            "experiments", experiment_id=identity, name=name, run_group=group, started_at=START + timedelta(hours=hours)
        )
        store.append("experiments", identity, "start", [row])
        if identity != "exp-00ab":
            store.seal(identity, ["experiments"])
    return store


def test_a_reference_means_an_id_a_group_or_the_newest_of_a_name(known: Store) -> None:
    for reference, found in {
        "exp-00aa": ["exp-00aa"],
        "exp-00ab": ["exp-00ab"],
        "group-3": ["exp-01aa", "exp-01ab"],
        "group-1": ["exp-00aa"],
        "demo": ["exp-00ab"],
        "demo~0": ["exp-00ab"],
        "demo~1": ["exp-00aa"],
    }.items():
        assert find_experiments(known, reference) == found, reference
    for reference, message in {
        "exp-01a": "experiment 'exp-01a': got the prefix of 2 ids, wanted a longer one",
        "nonsense": "experiment 'nonsense': not in .*, wanted an id or one of: both-two, both-one, demo$",
        "' or 1=1 --": "not in",
        "demo~2": "experiment 'demo~2': there are only 2 runs named 'demo', wanted ",
        "none~1": "experiment 'none~1': not in .*, wanted an id or one of",
    }.items():
        with pytest.raises(InputError, match=message):
            find_experiments(known, reference)


def test_a_name_goes_before_the_beginning_of_an_id_and_an_empty_store_says_so(store: Store, make: Make) -> None:
    with pytest.raises(InputError) as caught:
        find_experiments(store, "demo")
    assert str(caught.value) == f"experiment 'demo': not in {store.layout.root}, which has no experiment"
    store.append("watermarks", "one", "start", [make("watermarks", evaluation_id="one", name="demo")])
    with pytest.raises(InputError, match="experiment 'demo': got a trace evaluation, wanted an experiment; its scores"):
        find_experiments(store, "demo")
    for identity, name in (("exp-00aa", "demo"), ("exp-9", "exp-00a")):
        store.append("experiments", identity, "start", [make("experiments", experiment_id=identity, name=name)])
    assert find_experiments(store, "exp-00a") == ["exp-9"]
    assert find_experiments(store, "exp-0") == ["exp-00aa"], "of just one id"


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


def test_a_comparison_is_found_by_its_id_or_as_the_newest_of_a_name(compared: Store) -> None:
    for reference, found in {
        "cmp-00aa": "cmp-00aa",
        "cmp-00ab": "cmp-00ab",
        "cmp-01": "cmp-01aa",
        "tournament": "cmp-00ab",
        "cmp-00": "cmp-01aa",
    }.items():
        assert find_comparison(compared, reference) == found, reference
    with pytest.raises(InputError, match="comparison 'cmp-0': got the prefix of 3 ids, wanted a longer one"):
        find_comparison(compared, "cmp-0")
    with pytest.raises(InputError, match=r"comparison 'nonsense': not in .* one of: cmp-00, tournament$"):
        find_comparison(compared, "nonsense")
