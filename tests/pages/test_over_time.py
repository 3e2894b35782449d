"""Over time: a metric's means with intervals, breaks where versions changed, cost and latency."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from page_tables import shown_text
from page_text import Seen, seen
from past import Past
from starlette.testclient import TestClient
from store_rows import make_row

from evalflows.dashboard.app import application
from evalflows.dashboard.links import Links
from evalflows.dashboard.over_time import over_time_page
from evalflows.dashboard.rendering import Query, Site
from evalflows.specs.errors import InputError
from evalflows.store.store import Store

START = datetime(2026, 1, 1, tzinfo=UTC)


def run(store: Store, number: int, mean: float | None, version: str = "e1", **fields: Any) -> None:
    identity = f"exp-{number:02}"
    given = {
        "name": "bot",
        "target": "bot",
        "n_examples": 5,
        "state": "completed",
        "snapshot_id": "snap",
        "target_version": "t1",
    }
    row = make_row("experiments", experiment_id=identity, **{**given, **fields})
    store.publish("experiments", identity, [replace(row, started_at=START + timedelta(days=number))])
    of = {"experiment_id": identity, "evaluator_version": version, "n_examples": 4, "confidence_level": 0.95}
    means = {"right": mean, "latency": 0.25}
    rows = [
        make_row("estimates", estimate_id=f"{identity}-{name}", metric=name, mean=one, **of)
        for name, one in means.items()
    ]
    if mean is not None:
        rows[0] = replace(rows[0], ci_low=mean - 0.125, ci_high=mean + 0.125)
    store.publish("estimates", identity, [one for one in rows if one.mean is not None])


def fill() -> Store:
    store = Store()
    run(store, 0, 0.5, git_commit="abcdef0123", git_branch="main", cost_usd=1.5)
    run(store, 1, 0.75, target_version="t0")
    run(store, 2, 0.25, version="e2")
    run(store, 3, None, version="e2")
    run(store, 4, 0.5, version="e2", target_version="t2", snapshot_id="other")
    run(store, 5, 0.125, name="other", target="other")
    for day, snapshot in enumerate(("snap", "other") * 2, 6):
        run(store, day, day / 10, name="both", target="both", snapshot_id=snapshot, dataset_name=snapshot)
    return store


def page(store: Store, **values: str | list[str]) -> tuple[str, Seen]:
    query = Query({name: [value] if isinstance(value, str) else value for name, value in values.items()})
    body = over_time_page(Site(store=store, links=Links()), query).body
    return body, seen(str(body))


def test_the_table_has_the_figures_of_the_chart_newest_first(filled: Store) -> None:
    body, shown = page(filled)
    rows = shown.rows[1:]
    assert [row[0] for row in rows] == [f"2026-01-0{day} 00:00" for day in (5, 4, 3, 2, 1)]
    assert [row[2] for row in rows] == ["0.500", "-", "0.250", "0.750", "0.500"]
    assert rows[4][1:6] == ["abcdef0", "0.500", "0.375 to 0.625", "-", "4 of 5"]
    assert rows[4][7:9] == ["1.5000", "0.25 s"]
    assert rows[3][4] == "+0.250"
    assert rows[1][3] == "no value"
    assert rows[1][5] == "0 of 5"
    assert body.count('class="break"') == 3, "another evaluator and dataset; of cost and latency only the dataset"
    assert body.count('class="release"') == 6, "another target can be compared"
    assert '<text class="tick" x="1.5%"' in body and ">abcdef0</text>" in body, "the first version is named, too"


def test_what_changed_is_named_and_makes_figures_not_comparable(filled: Store) -> None:
    _, shown = page(filled)
    newest, _, judged_anew, second, first = shown.rows[1:]
    assert judged_anew[4] == "not comparable"
    assert judged_anew[6] == "evaluator target"
    assert newest[6] == "target dataset"
    assert (second[4], second[6], first[6]) == ("+0.250", "target", "-")
    assert ("+0.250", "/compare?baseline=exp-00&candidate=exp-01") in shown.links
    assert "/experiments/exp-04" in {address for _, address in shown.links}


def test_a_line_and_a_metric_are_chosen(filled: Store) -> None:
    _, shown = page(filled, name="other", target="other", metric="latency")
    assert [row[2] for row in shown.rows[1:]] == ["0.250"]
    _, shown = page(filled, name="other", target="bot")
    assert [row[2] for row in shown.rows[1:]] == ["0.125"], "the form keeps what was chosen before"


def test_runs_on_two_datasets_in_turn_are_two_lines_and_each_is_compared_with_the_last_on_its_own(
    filled: Store,
) -> None:
    body, shown = page(filled, name="both")
    assert [row[4] for row in shown.rows[1:]] == ["+0.200", "+0.200", "not comparable", "-"]
    assert ("+0.200", "/compare?baseline=exp-07&candidate=exp-09") in shown.links
    chart = body[: body.index("Cost (USD)")]
    assert chart.count("<polyline") == 2 and chart.count('class="break"') == 1
    assert [row[2] for row in page(filled, name="both", dataset="snap")[1].rows[1:]] == ["0.800", "0.600"]
    assert '<select name="dataset"><option value="">all</option><option>other</option>' in body


def test_several_systems_are_drawn_in_one_chart_with_a_legend(filled: Store) -> None:
    body, shown = page(filled, name=["other", "bot"], metric="right")
    legend = body[body.index('class="chips legend"') :]
    assert legend.index("other") < legend.index("bot")
    chart = body[body.index('class="chart timeline"') : body.index("Cost (USD)")]
    assert chart.count('class="series-0"') == chart.count('class="series-1"') == 1
    assert ["0.125"] in [row[2:3] for row in shown.rows] and ["0.750"] in [row[2:3] for row in shown.rows]
    hidden = [one["value"] for one in shown.fields if one.get("type") == "hidden" and one["name"] == "name"]
    assert hidden[:2] == ["other", "bot"], "the form keeps both"


def test_what_no_experiment_has_is_named(filled: Store) -> None:
    for name in ("name", "target", "metric"):
        with pytest.raises(InputError, match=f"^{name}: got 'x', wanted one of "):
            page(filled, **{name: "x"})


def test_stores_without_experiments_or_means(store: Store) -> None:
    assert "evalflows run SPEC" in page(store)[1].text
    store.publish("experiments", "exp-1", [make_row("experiments", experiment_id="exp-1", name="bot")])
    assert "No run of bot has a mean yet." in page(store)[1].text


def test_home_and_over_time_keep_to_a_dataset() -> None:
    past = Past()
    for name in ("easy", "hard"):
        past.experiment({"right": np.ones(3)}, name=f"on-{name}", dataset_name=name)
    browser = TestClient(application(Store()), base_url="http://127.0.0.1:4280")
    for address in ("/?dataset=hard", "/over-time?dataset=hard"):
        said = shown_text(browser.get(address).text)
        assert "on-hard" in said and "on-easy" not in said, address
    assert "dataset: got &#39;none&#39;, wanted one of easy, hard" in browser.get("/over-time?dataset=none").text
