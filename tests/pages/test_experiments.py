"""The list of experiments shows means, differences and verdicts, and filters."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from page_text import Seen, seen
from store_rows import make_row

from evalflows.dashboard.experiments import IN_PAGE, experiments_page
from evalflows.dashboard.home import home_page
from evalflows.dashboard.links import Links
from evalflows.dashboard.over_time import over_time_page
from evalflows.dashboard.rendering import Page, Query, Site
from evalflows.specs.errors import InputError
from evalflows.store.records import controls_batch, derived_id
from evalflows.store.store import Store

START = datetime(2026, 1, 1, tzinfo=UTC)


def experiment(store: Store, number: int, mean: float, **fields: Any) -> str:
    """The run of one day, with a mean of `right` over 4 of 5 examples, and outputs: 4 answered, 1 failed."""
    identity = f"exp-{number:02}"
    given = {"name": "bot", "target": "bot", "run_group": f"group-{number:02}", "n_examples": 5, "repetitions": 1}
    row = make_row("experiments", **{**given, "state": "completed", "tags": [], "dataset_name": "questions", **fields})
    row = replace(row, experiment_id=identity, started_at=START + timedelta(days=number))
    store.publish("experiments", identity, [row])
    of = {"experiment_id": identity, "confidence_level": 0.95, "n_examples": 4, "evaluator_version": "v1"}
    means = {"right": mean, "latency": 0.25}
    rows = [
        make_row("estimates", estimate_id=f"{identity}-{name}", metric=name, mean=one, **of)
        for name, one in means.items()
    ]
    rows[0] = replace(rows[0], ci_low=mean - 0.1, ci_high=mean + 0.1)
    store.publish("estimates", identity, rows)
    store.publish(
        "outputs",
        identity,
        [
            make_row(
                "outputs", run_id=derived_id(identity, one), experiment_id=identity, example_id=f"q{one}", status=status
            )
            for one, status in enumerate(["ok"] * 4 + ["failed"])
        ],
    )
    return identity


def page(store: Store, **values: str | list[str]) -> tuple[Page, Seen]:
    given = {name: [value] if isinstance(value, str) else value for name, value in values.items()}
    made = experiments_page(Site(store=store, links=Links()), Query(given))
    return made, seen(str(made.body))


def listed(shown: Seen) -> list[str]:
    return [address for _, address in shown.links if address.startswith("/experiments/exp-")]


def fill() -> Store:
    """Three runs; the second ran beside a baseline and was decided twice by one gate, the first by two gates."""
    store = Store()
    experiment(store, 0, 0.5)
    experiment(store, 1, 0.75, tags=["nightly", "a b"], dataset_name="others", cost_usd=1.5)
    experiment(store, 2, 0.25, name="<script>alert(1)</script>", tags=["nightly"], cost_usd=None)
    verdict = make_row(
        "verdicts",
        verdict_id="v",
        run_group="group-01",
        metric="right",
        candidate_experiment_id="exp-01",
        baseline_experiment_id="exp-00",
        difference=0.25,
        ci_low=0.125,
        ci_high=0.375,
        conclusion="better",
    )
    store.publish("verdicts", "group-01", [verdict])
    decided = [("exp-01", "release", "FAIL"), ("exp-01", "release", "PASS")]
    decided += [("exp-00", "release", "PASS"), ("exp-00", "strict", "NOT ENOUGH EVIDENCE")]
    for number, (candidate, gate, conclusion) in enumerate(decided):
        decision = make_row("decisions", decision_id=f"dec-{number}", gate=gate, candidate_experiment_id=candidate)
        at = START + timedelta(days=10 - number if gate == "strict" else 10 + number)
        store.publish("decisions", f"dec-{number}", [replace(decision, conclusion=conclusion, decided_at=at)])
    return store


def test_the_newest_come_first_with_means_progress_and_the_newest_decision(filled: Store) -> None:
    made, shown = page(filled)
    assert listed(shown) == ["/experiments/exp-02", "/experiments/exp-01", "/experiments/exp-00"]
    assert made.refresh_s is None
    _, _, (_, name, state, metrics, gate, cost, latency, dataset, started), _ = shown.rows
    assert (name, state) == ("bot nightly a b", "completed 4/5, 1 failed")
    assert (metrics, gate, cost, latency) == ("0.750 4 of 5", "PASS", "1.5000", "0.25 s")
    assert (dataset, started) == ("others", "2026-01-02")
    assert shown.rows[3][4] == "NOT ENOUGH EVIDENCE strict PASS release", "no gate hides behind another"
    assert shown.rows[1][5] == "unknown", "a cost that is not known is not 0"
    assert "<script>alert" not in made.body


def test_a_chosen_metric_has_its_interval_difference_and_verdict(filled: Store) -> None:
    made, shown = page(filled, metric="right")
    head, _, second, first = shown.rows
    assert head[3:7] == ["right", "Interval", "Difference", "Verdict"]
    assert second[3:7] == ["0.750 4 of 5", "", "+0.25 [+0.12, +0.38] against bot", "better"]
    assert first[3:7] == ["0.500 4 of 5", "", "-", "-"]
    assert made.body.count('class="chart whisker') == 3
    assert "right in the last 2 runs of bot: from 0.500 to 0.750" in made.body


def test_without_a_baseline_the_difference_is_from_the_previous_run_of_the_same_evaluator(store: Store) -> None:
    for number, mean in enumerate((0.5, 0.75, 0.25)):
        experiment(store, number, mean)
    (changed,) = [row for row in store.read("estimates", "exp-02") if row.metric == "right"]
    store.publish("estimates", "exp-02", [replace(changed, evaluator_version="v2")])
    _, shown = page(store, metric="right")
    assert [row[5:7] for row in shown.rows[1:]] == [
        ["-", "-"],
        ["+0.250 from the previous run", "not tested"],
        ["-", "-"],
    ]


def test_a_run_is_one_line_and_columns_and_order_are_chosen_and_kept_in_the_address(store: Store) -> None:
    for number, mean in enumerate((0.5, 0.75, 0.25)):
        experiment(store, number, mean, run_group="one" if number else "other", cost_usd=number or None)
    made, shown = page(store)
    group = shown.rows[1]
    assert (group[3], group[5]) == ("0.250 to 0.750", "3.0000") and "show the 2 experiments of one" in made.body
    assert listed(shown) == [f"/experiments/exp-0{one}" for one in (2, 1, 0)]
    orders = {"mean of right": (2, 0, 1), "-mean of right": (1, 0, 2), "cost": (1, 2, 0), "-cost": (2, 1, 0)}
    for sort, wanted in orders.items():
        made, shown = page(store, sort=sort, metric=["latency", "right"])
        assert listed(shown) == [f"/experiments/exp-0{one}" for one in wanted], "what lacks it comes last"
        assert [head for head in shown.rows[0] if head[-1] in "▲▼"] == [
            f"{'Cost, USD' if 'cost' in sort else 'right'} {'▼' if sort[0] == '-' else '▲'}"
        ]
        assert 'class="opens"' not in made.body and f'name="sort" value="{sort}"' in made.body
    again = dict(shown.links)["Cost, USD"]
    assert again == "/experiments?metric=latency&metric=right&sort=cost", "a click turns the order"
    with pytest.raises(InputError, match="sort: got 'x', wanted one of started"):
        page(store, sort="x")


def test_filters(filled: Store) -> None:
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({"q": "SCRIPT"}, ["exp-02"]),
        ({"q": "exp-02"}, ["exp-02"]),
        ({"dataset": "others"}, ["exp-01"]),
        ({"tag": "nightly"}, ["exp-02", "exp-01"]),
        ({"tag": ["nightly", "a b"]}, ["exp-01"]),
        ({"state": "completed", "since": "2026-01-02"}, ["exp-02", "exp-01"]),
        ({"state": "interrupted"}, []),
        ({"conclusion": "PASS"}, ["exp-01"]),
        ({"conclusion": "FAIL"}, []),
        ({"conclusion": "NOT ENOUGH EVIDENCE"}, ["exp-00"]),
    ]
    for values, wanted in cases:
        _, shown = page(filled, **values)
        assert listed(shown) == [f"/experiments/{one}" for one in wanted], values
        assert ("No experiment matches." in shown.text) == (not wanted)
    for name, value in {"since": "soon", "state": "x", "metric": "x", "page": "0", "conclusion": "?"}.items():
        with pytest.raises(InputError, match=f"^{name}: got "):
            page(filled, **{name: value})


def test_long_lists_have_pages(store: Store) -> None:
    for number in range(IN_PAGE + 1):
        row = make_row("experiments", experiment_id=f"exp-{number:02}", started_at=START + timedelta(days=number))
        store.publish("experiments", row.experiment_id, [row])
    _, first = page(store)
    _, second = page(store, page="2")
    assert (len(listed(first)), listed(second)) == (IN_PAGE, ["/experiments/exp-00"])
    assert f"{IN_PAGE + 1} experiments" in first.text
    assert ("next", "/experiments?page=2") in first.links


def test_a_running_experiment_fills_in(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "evalflows run SPEC" in page(store)[1].text, "an empty store says how to begin"
    monkeypatch.setattr("evalflows.store.sql.held_leases", lambda _: ["group-00"])
    experiment(store, 0, 0.5, state="running")
    made, shown = page(store)
    assert made.refresh_s == 5
    assert shown.rows[1][2] == "running 4/5, 1 failed"


def test_a_mean_whose_judge_failed_validation_is_marked_wherever_it_is_shown(store: Store) -> None:
    identities = [
        experiment(store, number, 0.5, evaluators='[{"name": "right", "version": "v1"}]') for number in range(2)
    ]
    batch = controls_batch("group-01")
    of = {"subject_kind": "judge", "subject_id": "right", "name": "controls", "passed": False, "message": "says yes"}
    store.publish("checks", batch, [make_row("checks", check_id="c1", batch_id=batch, **of)])
    site = Site(store=store, links=Links())
    for made in (page(store)[0], page(store, metric="right")[0], over_time_page(site, Query({}))):
        marks = [address for text, address in seen(str(made.body)).links if text in ("judge failed validation", "⚠")]
        assert 'title="judge failed validation: says yes"' in made.body or 'title="right: says yes"' in made.body
        assert marks == ["/judges/right"], "of the second experiment only"
    assert identities == ["exp-00", "exp-01"]


def test_home_has_the_newest_experiments_and_the_last_decision_of_each_gate(filled: Store) -> None:
    shown = seen(home_page(Site(store=filled, links=Links()), Query({})).body)
    assert "Running" not in shown.text and "incident" not in shown.text
    open_ones, _, rest = shown.text.partition("Newest experiments")
    assert "NOT ENOUGH EVIDENCE" in open_ones and "strict" in open_ones and "release" not in open_ones, open_ones
    assert "release" in rest.partition("Gates that pass")[2] and "strict" not in rest.partition("Gates that pass")[2]
    assert ("all 3 experiments", "/experiments") in shown.links
