"""A release gate, from a spec to the decision: what passes, what fails, what cannot be told, what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from catalog_rows import rows
from gated import drawn, fallen, gated

from evalflows import approve, decide_again, decide_on, gate, run
from evalflows.reports.decisions import Decision, decisions_named, decisions_of
from evalflows.specs import ExperimentSpec, InputError
from evalflows.specs.errors import GateFailedError
from evalflows.specs.gate import GateSpec
from evalflows.store.store import Store

pytestmark = pytest.mark.usefixtures("without_prefect")

GUARD = {"name": "release", "non_inferiority": {"exact_match": 0.05}}


def spec_of(fields: dict[str, Any]) -> ExperimentSpec:
    return ExperimentSpec.model_validate(fields)


def decided(fields: dict[str, Any]) -> list[Decision]:
    """What the gates decided, whatever it was."""
    try:
        return decisions_named(Store(), gate(spec_of(fields)))
    except GateFailedError as error:
        return decisions_named(Store(), error.decisions)


@pytest.mark.slow
def test_a_planted_regression_of_ten_points_fails_the_flow_run(tmp_path: Path) -> None:
    old = drawn(400, 0.8)
    spec = spec_of(gated(tmp_path, [GUARD], old=old, new=fallen(old, 0.1)))
    with pytest.raises(
        GateFailedError, match=r"^gate release: app-new against app-old: FAIL: exact_match is worse"
    ) as e:
        gate(spec)
    (one,) = decisions_named(Store(), e.value.decisions)
    assert (one.conclusion, one.candidate, one.baseline) == ("FAIL", "app-new", "app-old")
    assert one.summary == ("exact_match is worse by more than 0.05: -0.100 [-0.133, -0.069], 400 pairs")
    columns = "conclusion, difference, round(minimum_detectable_effect, 3)"
    assert rows(f"select {columns} from verdicts where decision_id is not null") == [("worse", -0.1, 0.042)]


@pytest.mark.slow
def test_every_target_but_the_baseline_is_decided_on(tmp_path: Path) -> None:
    old = drawn(200, 0.7)
    worse, better = fallen(old, 0.2), old | drawn(200, 0.6, seed=8)
    goal = {"name": "superiority", "superiority": ["exact_match"]}
    found = decided(gated(tmp_path, [GUARD, goal], old=old, worse=worse, better=better))
    assert [(one.gate, one.candidate, one.conclusion) for one in found] == [
        ("release", "app-worse", "FAIL"),
        ("release", "app-better", "PASS"),
        ("superiority", "app-worse", "FAIL"),
        ("superiority", "app-better", "PASS"),
    ]


@pytest.mark.slow
def test_against_an_approved_baseline_which_never_moves_by_itself(tmp_path: Path) -> None:
    old = drawn(400, 0.8)
    fields = gated(tmp_path, [GUARD], v1=old)
    with pytest.raises(InputError, match="no experiment is approved as baseline 'app'"):
        gate(spec_of(fields))
    assert rows("select * from experiments") == []  # nothing was run for it

    (first,) = run(spec_of(fields))
    (none,) = decisions_of(Store(), [first])
    assert (none.conclusion, f"baseline approve {first} --name app" in none.summary) == ("NOT ENOUGH EVIDENCE", True)
    with pytest.raises(InputError, match=f"baseline approve {first} --name app"):
        gate(spec_of(fields))
    assert approve(first, reason="as agreed").name == "app"

    worse = gated(tmp_path, [GUARD], v2=fallen(old, 0.15))
    (one,) = decided(worse)
    assert (one.conclusion, one.baseline_experiment_id, one.n_shared) == ("FAIL", first, 400)
    better = gated(tmp_path, [GUARD], v3=old | drawn(400, 0.8, seed=9))
    (one,) = decided(better)
    assert (one.conclusion, one.baseline_experiment_id) == ("PASS", first)
    approve(one.candidate_experiment_id)
    (one,) = decided(fields)
    assert (one.baseline, one.conclusion) == ("app", "FAIL")
    assert rows("select experiment_id, holds from approvals order by recorded_at") == [
        (first, False),
        (rows("select baseline_experiment_id from gate_decisions order by decided_at desc limit 1")[0][0], True),
    ]


@pytest.mark.slow
def test_an_incomplete_experiment_is_not_approved(tmp_path: Path) -> None:
    fields = gated(tmp_path, [], old=drawn(30, 0.5)) | {"max_calls": 0}
    fields["targets"] = [{"kind": "chat", "connection": "local", "user": "{q}"}]
    with pytest.raises(Exception, match="not done"):
        run(spec_of(fields))
    with pytest.raises(InputError, match="is incomplete"):
        approve("app")


@pytest.mark.slow
def test_other_judges_are_refused_before_anything_is_run(tmp_path: Path) -> None:
    old = drawn(60, 0.8)
    (first,) = run(spec_of(gated(tmp_path, [], v1=old)))
    approve(first)
    changed = gated(tmp_path, [GUARD], v2=old)
    changed["evaluators"] = [{"use": "exact_match", "args": {"ignore_case": True}}]
    with pytest.raises(InputError, match=r"exact_match was scored by a different version of its evaluator: \w+ then"):
        gate(spec_of(changed))
    assert rows("select count(*) from experiments") == [(1,)]

    (second,) = run(spec_of(changed))  # a plain run says so, and goes on
    (one,) = decisions_of(Store(), [second])
    assert one.conclusion == "NOT ENOUGH EVIDENCE"
    assert one.summary.startswith("exact_match: refused: exact_match was scored by a different version")


@pytest.mark.slow
def test_a_candidate_cannot_pass_by_leaving_out_or_changing_what_it_fails(tmp_path: Path) -> None:
    old = drawn(120, 0.7)
    new = fallen(old, 0.15)
    (first,) = run(spec_of(gated(tmp_path, [], v1=old)))
    approve(first)
    rules = {
        "guarded": GUARD,
        "floor": {"thresholds": {"exact_match": 0.72}},
        "length": {"non_inferiority": {"answer_length": 3}},
    }
    gates = [{**rule, "name": name} for name, rule in rules.items()]
    gates += [{**gate, "name": f"{gate['name']} shared", "only_shared": True} for gate in gates]
    fields = gated(tmp_path, gates, v2=[*new, *([True] * 50)])
    first_fall, *falls = np.flatnonzero(old & ~new)
    examples = fields["dataset"]["rows"]
    examples[first_fall]["inputs"] = {"q": "Asked otherwise"}
    for place in falls[:9]:
        examples[place]["reference_outputs"] = {"a": "no"}
    fields["dataset"]["rows"] = [row for place, row in enumerate(examples) if place not in falls[9:]]
    found = decided(fields)
    conclusions = [one.conclusion for one in found]
    assert conclusions == ["NOT ENOUGH EVIDENCE"] * 3 + ["PASS"] * 2 + ["NOT ENOUGH EVIDENCE"], found
    assert "does not have 18 of the baseline's examples" in found[2].summary
    assert "all 102 differences are equal" in found[5].summary
    note = "58 are on one side only, 10 have different inputs or references"
    assert all(one.n_shared == 102 and note in one.notes[0] for one in found)
    missing = "the other 18 of the baseline's 120 examples count as missing"
    assert [any(missing in note for note in one.notes) for one in found] == [True] * 3 + [False] * 3
    columns = "n_pairs, difference, candidate_missing, round(worst_case_low, 3)"
    verdicts = rows(
        f"""select {columns} from verdicts join decisions using (decision_id)
            where metric = 'exact_match' and starts_with(gate, 'guarded') order by gate"""
    )
    assert verdicts == [(102, 0.0, 18, -0.15), (102, 0.0, 0, 0.0)]


@pytest.mark.slow
def test_the_same_evidence_gives_the_same_decision_once(tmp_path: Path) -> None:
    old = drawn(100, 0.8)
    fields = gated(tmp_path, [GUARD], old=old, new=fallen(old, 0.3)) | {"run_key": "k"}
    (one,), (two,) = decided(fields), decided(fields)
    assert one.decision_id == two.decision_id
    assert one.decided_at == two.decided_at
    assert rows("select count(*), bool_and(confirmed_at > decided_at) from gate_decisions") == [(1, True)]
    assert decide_again(one.decision_id).decision_id == one.decision_id
    other = fields | {"gates": [GUARD | {"non_inferiority": {"exact_match": 0.6}}]}
    (three,) = decided(other)
    assert (three.conclusion, three.decision_id != one.decision_id) == ("PASS", True)
    (four,) = decided(fields)  # not what was decided last, by another rule
    assert (four.conclusion, four.decision_id) == ("FAIL", one.decision_id)
    assert rows("select decision_id from gate_decisions where is_newest") == [(one.decision_id,)]


@pytest.mark.slow
def test_a_missing_value_does_not_better_what_lies_beyond_the_range(tmp_path: Path) -> None:
    fields = gated(tmp_path, [{"non_inferiority": {"answer_length": 2}}], old=[True] * 40, new=[True] * 40)
    fields["metrics"] = {"answer_length": {"range": [0, 10], "higher_is_better": False}}
    for place, answer in enumerate(("yes", "yes, and that is all that I am going to say of it today, or ever")):
        path = Path(fields["targets"][place]["path"])
        lines = [{"id": f"q{i:04}", "outputs": {"a": answer}} for i in range(39 if place else 40)]
        path.write_text("\n".join(map(json.dumps, lines)))
    (one,) = decided(fields)
    assert one.conclusion == "FAIL"


@pytest.mark.slow
def test_deciding_on_experiments_that_exist(tmp_path: Path) -> None:
    old = drawn(200, 0.8)
    run(spec_of(gated(tmp_path, [], old=old, new=fallen(old, 0.2))))
    policy = GateSpec.model_validate(GUARD)
    assert decide_on("app-new", "app-old", policy).conclusion == "FAIL"
    assert decide_on("app-old", "app-new", policy).conclusion == "PASS"
    with pytest.raises(InputError, match="got no baseline, wanted one for non_inferiority and superiority"):
        decide_on("app-new", None, policy)
    assert decide_on("app-new", None, GateSpec(confident_thresholds={"exact_match": 0.5})).conclusion == "PASS"
    assert decide_on("app-new", None, GateSpec(confident_thresholds={"exact_match": 0.7})).conclusion == "FAIL"
    kept = rows("select gate, candidate, baseline, conclusion from gate_decisions order by decided_at")
    assert kept == [
        ("release", "app-new", "app-old", "FAIL"),
        ("release", "app-old", "app-new", "PASS"),
        ("release", "app-new", None, "PASS"),
        ("release", "app-new", None, "FAIL"),
    ]
    first = decide_on("app-new", "app-old", policy)
    assert decide_again(first.decision_id).decision_id == first.decision_id, "found by its id"
    assert rows("select count(*) from decisions") == [(4,)], "the same figures, the same decision"
    assert rows(f"select metric from verdicts where decision_id = '{first.decision_id}'") == [("exact_match",)]


@pytest.mark.slow
def test_trials_specs_without_gates_and_rules_on_what_nothing_gives_are_refused(tmp_path: Path) -> None:
    old = drawn(40, 0.8)
    fields = gated(tmp_path, [GUARD], {"tags": ["trial"]}, old=old, new=old)
    with pytest.raises(InputError, match="spec 'app': got the tag 'trial', wanted a run that a gate may decide on"):
        gate(spec_of(fields))
    run(spec_of(fields))
    assert rows("select count(*) from decisions") == [(0,)]
    with pytest.raises(InputError, match="got no gates"):
        gate(spec_of(gated(tmp_path, [], old=[True] * 3)))
    gates = [{"non_inferiority": {"exact_mach": 0.1}}]
    with pytest.raises(InputError, match="gate 'release': no evaluator gives 'exact_mach', wanted one of exact_match"):
        gate(spec_of(gated(tmp_path, gates, old=[True] * 3, new=[True] * 3)))


@pytest.mark.slow
def test_a_floor_may_be_on_a_metric_of_all_answers_at_once(tmp_path: Path) -> None:
    old = drawn(100, 0.8)
    for floor, said in ((0.7, "PASS"), (0.85, "FAIL")):
        fields = gated(tmp_path, [{"thresholds": {"right": floor}}], new=old)
        (one,) = decided(fields | {"summary_evaluators": [{"use": "odd_evaluators:right"}]})
        assert (one.conclusion, "0.800, 100 answers" in one.summary) == (said, True)


@pytest.mark.slow
def test_why_there_is_nothing_to_hold_a_rule_against_is_said(tmp_path: Path) -> None:
    why = {
        "manner": "it has labels, which are not averaged",
        "mixed": "0.500, 15 examples; wanted at least 20 to decide",
        "gone": "no evaluator gives it",
    }
    fields = gated(tmp_path, [{"thresholds": dict.fromkeys(why, 0.5)}], new=[True] * 30)
    (one,) = decided(fields | {"evaluators": ["odd_evaluators:manner", "odd_evaluators:mixed"]})
    assert {rule.metric: rule.text.partition(": ")[2] for rule in one.rules} == why


@pytest.mark.slow
def test_the_interval_decides_and_not_the_mean_where_clusters_answer_alike(tmp_path: Path) -> None:
    """Forty conversations of ten turns each that stand or fall together are forty, not four hundred."""
    old = drawn(400, 0.9)
    new = old.copy()
    new[:60] = False  # six whole conversations
    fields = gated(tmp_path, [{"non_inferiority": {"exact_match": 0.05}}], old=old, new=new)
    (alone,) = decided(fields)
    fields["dataset"]["rows"] = [row | {"cluster": f"c{i // 10}"} for i, row in enumerate(fields["dataset"]["rows"])]
    (together,) = decided(fields)
    assert (alone.conclusion, together.conclusion) == ("FAIL", "NOT ENOUGH EVIDENCE")
    assert "40 clusters" in together.summary
