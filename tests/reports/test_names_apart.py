"""Experiments of one name are told apart by versions, else by commits, else by times."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
from page_tables import shown_text
from past import Past

from evalflows import diff
from evalflows.reports.names import names_apart
from evalflows.store.store import Store

QUERY = "select 1 from source.experiments"


def test_versions_then_commits_then_times(store: Store, make: Callable[..., Any]) -> None:
    def named(**fields: tuple[Any, Any]) -> list[str]:
        ids = [f"exp-{number}-{len(store.query(QUERY, []))}" for number in (1, 2)]
        for number, identity in enumerate(ids):
            own = {field: values[number] for field, values in fields.items()}
            row = make(
                "experiments", experiment_id=identity, started_at=datetime(2026, 1, number + 1, tzinfo=UTC), **own
            )
            store.append("experiments", identity, "start", [row])
        return [*names_apart(store, {**dict.fromkeys(ids, "bot"), "exp-other": "other"}).values()]

    commits: tuple[str, str] = ("0123456789", "abcdefghij")
    assert named(application_version=("v6", "v7"), git_commit=commits) == ["bot v6", "bot v7", "other"]
    by_commit = {"git_commit": commits, "git_dirty": (False, False)}
    assert named(**by_commit, application_version=("v7", "v7")) == ["bot 0123456", "bot abcdefg", "other"]
    times = ["bot (2026-01-01 00:00 UTC)", "bot (2026-01-02 00:00 UTC)", "other"]
    assert named(git_commit=commits, git_dirty=(False, True)) == times, "the code was changed since the commit"
    assert named(application_version=("v6", None)) == times


def test_a_difference_of_two_runs_of_one_name_tells_them_apart() -> None:
    past = Past()
    for _ in range(2):
        past.experiment({"right": np.ones(4)}, name="sums")
    found = diff("exp-000", "exp-001")
    assert "'sums (2026-01-02 00:00 UTC)' against 'sums (2026-01-01 00:00 UTC)'" in repr(found)
    assert "sums (2026-01-02 00:00 UTC) against sums (2026-01-01 00:00 UTC)" in shown_text(found._repr_html_())
