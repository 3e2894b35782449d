"""What could still be wrong with a decision: each limit from a decision that has it, and none without."""

from dataclasses import replace
from typing import Any

import numpy as np
from past import FAILED, Past, guard, passes
from store_rows import make_row

from evalflows.analysis.differences import ExperimentPair, MetricReader
from evalflows.analysis.gate_evaluation import GateEvaluation, keep_decision
from evalflows.reports.decisions import find_decision, with_limits
from evalflows.reports.markdown_pages import decisions_page
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.gate import GateSpec
from evalflows.store.records import VerdictRow, controls_batch, to_json
from evalflows.store.store import Store


def decision(past: Past, gate: GateSpec, spec: ExperimentSpec | None = None, *, alone: bool = False) -> str:
    """The id of the decision on the newest experiment, against the one before or alone."""
    *_, old, new = [None, *past.rows]
    assert new is not None
    pair = ExperimentPair(
        reader=MetricReader(past.store), spec=spec or past.spec(), candidate=new, baseline=None if alone else old
    )
    return keep_decision(past.store, GateEvaluation(gate=gate, pair=pair)).decision_id


def limits(past: Past, gate: GateSpec, spec: ExperimentSpec | None = None, *, alone: bool = False) -> list[str]:
    """What limits it."""
    identity = decision(past, gate, spec, alone=alone)
    return list(with_limits(Store(), [find_decision(Store(), identity)])[0].limits)


def two(first: Any, second: Any, **fields: Any) -> Past:
    past = Past()
    for values in (first, second):
        past.experiment({"right": values}, yes_no=["right"], **fields)
    return past


def test_a_decision_without_limits_has_none() -> None:
    assert limits(two(passes(0.7, 100, 0), passes(0.7, 100, 0)), guard(0.2)) == []


def test_equal_inputs_are_told_unless_clusters_count_them_together() -> None:
    fields = [{"inputs": f"{place % 30}?"} for place in range(100)]
    for clusters, said in (
        (None, ["the 100 examples have 30 different inputs"]),
        ([one["inputs"] for one in fields], []),
    ):
        past = Past(fields=fields, clusters=clusters)
        for _ in range(2):
            past.experiment({"right": passes(0.7, 100, 0)}, yes_no=["right"])
        assert [limit.partition(":")[0] for limit in limits(past, guard(0.2))] == said


def test_a_composite_that_leaves_out_missing_parts_says_how_many() -> None:
    past, right = Past(), passes(0.7, 100, 0)[:, 0].astype(float)
    for failed in (0, 30):
        parts = {"right": np.where(np.arange(100) < failed, FAILED, right), "polite": right}
        past.experiment({**parts, "quality": right})
    weights = {"name": "quality", "weights": {"right": 3, "polite": 1}}
    gate = GateSpec.model_validate({"non_inferiority": {"quality": 0.2}})
    for policy, said in (("leave_out", ["30 of 100 scores of right of the candidate"]), ("fail", [])):
        composite = past.spec(composites=[weights | {"missing": policy}])
        past.store.publish("experiments", "exp-001", [replace(past.rows[1], spec=composite.model_dump_json())])
        found = [limit for limit in limits(past, gate, composite) if "left out" in limit]
        assert [limit.rpartition(": ")[2] for limit in found] == said


def test_the_difference_that_pairs_detect_fits_the_interval_of_the_rule() -> None:
    """Two of a hundred scores fell: the interval of non-inferiority allows for others that were not drawn."""
    past, old = Past(), np.full(100, 0.9)
    for values in (old, np.where(np.arange(100) < 2, 0.8, old)):
        past.experiment({"score": values})
    scores = past.spec(metrics={"score": {"range": [0, 1], "higher_is_better": True}})
    gate = GateSpec(name="release", non_inferiority={"score": 0.01}, superiority={"score": 0.0})
    identity = decision(past, gate, scores)
    (shown,) = with_limits(Store(), [find_decision(Store(), identity)])
    found = {limit.partition(":")[0]: limit for limit in shown.limits if "detect a difference of" in limit}
    guarded, better = (float(limit.split(" difference of ")[1].split()[0]) for limit in found.values())
    non_inferiority, superiority = shown.rules
    assert superiority.text.count("(of the test of no difference), 100 pairs") == 1
    assert non_inferiority.text.count("(allowing for rare values), 100 pairs") == 1
    assert non_inferiority.value is not None and non_inferiority.low is not None and superiority.low is not None
    assert guarded > non_inferiority.value - non_inferiority.low > 0.03
    assert better < 0.01


def test_missing_values_are_said_with_the_worst_case() -> None:
    new = np.where(np.arange(100) < 80, 1.0, 0.0)
    new[:5] = FAILED
    past = two(np.arange(100) < 70, new)
    (met,) = limits(past, guard(0.3))
    assert met.startswith("right, non inferiority: 5 missing values; the rule is met in any case; worst-case")
    (flips,) = limits(past, GateSpec.model_validate({"name": "up", "superiority": {"right": 0.0}}))[:1]
    assert flips.startswith("right, superiority: 5 missing values, which can change the outcome; worst-case inter")
    low, high = (float(end) for end in flips.partition("[")[2].partition("]")[0].split(", "))
    assert low < 0.05 < high  # with the 5 at 0, the difference is 0.75 - 0.7


def test_a_rule_that_was_not_tested_has_no_further_limit() -> None:
    past = two(passes(0.7, 6, 0), passes(0.7, 6, 1))
    for gate in (GateSpec.model_validate({"thresholds": {"other": 0.5}}), guard(0.2)):
        assert limits(past, gate) == [], "its text says why"


def test_a_decision_on_few_examples_says_so_even_if_the_gate_allows_it() -> None:
    past = two(passes(0.7, 12, 0), passes(0.7, 12, 0))
    assert "right, non inferiority: n = 12, fewer than the 20 that gates ask for by default" in limits(
        past, guard(0.9, min_examples=10)
    )


def test_few_clusters_are_said() -> None:
    past = Past(clusters=[f"c{place % 6}" for place in range(60)])
    for seed in (0, 1):
        past.experiment({"right": passes(0.7, 60, seed)}, yes_no=["right"])
    assert "right: 6 clusters: intervals from fewer than 10 may cover less often than stated" in limits(
        past, guard(0.9, min_examples=5)
    )


def test_a_plain_threshold_within_the_interval_may_be_chance() -> None:
    past = two(passes(0.7, 100, 0), passes(0.7, 100, 0))
    share = float(passes(0.7, 100, 0).mean())
    (said,) = limits(past, GateSpec.model_validate({"thresholds": {"right": share - 0.01}}))
    assert f"includes the bound {share - 0.01:g}: chance may have decided" in said
    assert limits(past, GateSpec.model_validate({"thresholds": {"right": 0.3}})) == []


def test_a_judge_without_validation_is_named() -> None:
    past = two(passes(0.7, 100, 0), passes(0.7, 100, 0), models={"right": "judge-1"})
    (said,) = limits(past, guard(0.2))
    assert said.startswith("right: the judge right is not validated")
    of_judge = {"subject_kind": "judge", "subject_id": "right"}
    observed = to_json({"evaluator_version": "e1"})
    before = decision(past, guard(0.2))
    for passed, wanted in ((False, ["right: the judge right does not agree with people's labels"]), (True, [])):
        check = {**of_judge, "name": "people", "passed": passed, "observed": observed}
        past.store.publish("checks", "people-1", [make_row("checks", check_id="c1", batch_id="people-1", **check)])
        (one,) = with_limits(Store(), [find_decision(Store(), before)])
        assert [limit.partition(" better")[0] for limit in one.limits] == wanted, "a decision made before stands"
        assert limits(past, guard(0.2)) == [], "rejected, the rule is open and says why"
    past.store.publish("checks", "people-1", [])
    batch = controls_batch(past.rows[-1].run_group)
    check = {**of_judge, "name": "controls", "passed": True}
    past.store.publish("checks", batch, [make_row("checks", check_id="c1", batch_id=batch, **check)])
    assert limits(past, guard(0.2)) == []


def test_a_judge_counts_for_the_composites_that_it_is_part_of() -> None:
    spec = Past().spec(composites=[{"name": "both", "weights": {"right": 1, "short": 1}}])
    past, values = Past(), passes(0.7, 100, 0)
    for _ in range(2):
        past.experiment({"right": values, "short": values, "both": values}, models={"right": "judge-1"}, spec=spec)
    gate = GateSpec.model_validate({"non_inferiority": {"both": 0.2}})
    assert [one.partition(" is not")[0] for one in limits(past, gate, spec)] == ["both: the judge right"]


def test_a_direction_that_is_assumed_is_said_once_for_a_metric_and_its_slices() -> None:
    past = Past(fields=[{"split": "hard" if place % 2 else "easy"} for place in range(40)])
    for more in (0.0, 2.0):
        past.experiment({"words": 20 + more + np.arange(40) % 3})
    gate = GateSpec.model_validate({"superiority": ["words", "words@split=hard"]})
    assert sum(one.startswith("words: higher counts as better") for one in limits(past, gate)) == 1


def test_an_application_that_does_not_say_its_version_may_have_changed() -> None:
    past = two(passes(0.7, 100, 0), passes(0.7, 100, 0), target_kind="http")
    alone = GateSpec.model_validate({"confident_thresholds": {"right": 0.3}})
    assert [one.partition(" is unknown")[0] for one in limits(past, alone, alone=True)] == [
        "the version of the candidate"
    ]
    assert limits(past, guard(0.2)) == []  # the differences between the two already say it
    past.experiment({"right": passes(0.7, 100, 0)}, yes_no=["right"], target_kind="http", application_version="7")
    assert [one.partition(" is unknown")[0] for one in limits(past, guard(0.2))] == ["the version of the baseline"]


def test_a_pass_tells_of_earlier_runs_of_the_same_version_that_did_not_pass() -> None:
    past, gate = Past(), GateSpec(thresholds={"right": 0.65})
    for share, version, n_before in ((0.3, "one", 0), (0.4, "one", 0), (0.9, "two", 0), (0.9, "one", 2)):
        past.experiment({"right": passes(share, 100, 0)}, yes_no=["right"], target_version=version)
        told = [limit for limit in limits(past, gate, alone=True) if "earlier run" in limit]
        assert [limit.partition(":")[0] for limit in told] == [
            f"{n_before} earlier runs of this version on these examples did not pass ({n_before} FAIL)"
        ][: bool(n_before)]


def test_an_incomplete_candidate_alone_is_said() -> None:
    past = Past()
    past.experiment({"right": passes(0.7, 100, 0)}, state="incomplete", reason="budget spent")
    gate = GateSpec.model_validate({"confident_thresholds": {"right": 0.3}})
    assert "the candidate is incomplete: budget spent" in limits(past, gate, alone=True)


def test_pairs_of_latency_that_are_left_out_are_said() -> None:
    past = two(passes(0.7, 36, 0), passes(0.7, 36, 0))
    limits(past, guard(0.2))
    ((identity,),) = Store().query("select decision_id from source.decisions", [])
    (verdict,) = Store().read("verdicts", identity)
    assert isinstance(verdict, VerdictRow)
    of_latency = replace(verdict, verdict_id="v2", metric="latency", n_pairs=35, warning=None)
    Store().publish("verdicts", identity, [verdict, of_latency])
    (decision,) = with_limits(Store(), [find_decision(Store(), identity)])
    assert [one for one in decision.limits if one.startswith("latency")] == [
        "latency: 35 of 36 pairs: those answered side by side, without the first"
    ]
    assert "latency: 35 of 36 pairs" in decisions_page([decision])
    assert "**Limits of this decision**" in decisions_page([decision])
