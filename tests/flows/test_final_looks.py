"""The final examples: only a gate runs them, and only so often."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from click.testing import CliRunner, Result
from gated import drawn, gated
from pydantic import ValidationError

from evalflows import approve, decide_again, gate, plan, run
from evalflows.analysis.final_looks import take_look
from evalflows.cli.main import cli
from evalflows.reports.decisions import decisions_named, decisions_of, decisions_on, with_limits
from evalflows.reports.experiment_report import experiments_report
from evalflows.reports.markdown_pages import after_experiments
from evalflows.reports.results import results_of
from evalflows.reports.worst import HIDDEN
from evalflows.specs import ExperimentSpec, InputError
from evalflows.specs.reference import refer
from evalflows.store.doctor import examine
from evalflows.store.leases import hold_lease
from evalflows.store.manifests import user_name
from evalflows.store.queries.looks import look_id, look_of, unkept_looks
from evalflows.store.sql import ask, select_from
from evalflows.store.store import Store
from evalflows.tasks.snapshot import check_and_freeze

pytestmark = pytest.mark.usefixtures("without_prefect")

FLOOR = {"name": "floor", "thresholds": {"exact_match": 0.5}, "min_examples": 5}


@pytest.fixture
def fields(tmp_path: Path) -> dict[str, Any]:
    """A dataset of 12 examples, of which every third is final."""
    made: dict[str, Any] = gated(tmp_path, [FLOOR], app=drawn(12, 0.9))
    for number, row in enumerate(made["dataset"]["rows"]):
        row["split"] = "development" if number % 3 else "final"
    return {**made, "final_looks": 2}


def says_yes(inputs: dict[str, Any]) -> str:
    return "yes" if inputs else "no"


def says_no(inputs: dict[str, Any]) -> str:
    return "no" if inputs else "yes"


SAYS_YES = {"kind": "python", "name": "app", "function": refer(says_yes)}


def spec_of(fields: dict[str, Any], **changes: Any) -> ExperimentSpec:
    return ExperimentSpec.model_validate(fields | changes)


def test_only_a_gate_runs_the_final_examples_and_only_so_often(
    fields: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store()
    (developed,) = run(spec_of(fields, gates=[]))
    assert "4 examples of the split final are left out: only a release gate runs them" in capsys.readouterr().err
    snapshots = {}

    def looked(**changes: Any) -> tuple[str, list[str]]:
        (decision,) = with_limits(store, decisions_named(store, gate(spec_of(fields, **changes))))
        (row,) = store.read("experiments", decision.candidate_experiment_id)
        snapshots[row.n_examples] = row.snapshot_id
        return row.experiment_id, [one for one in decision.limits if "look" in one]

    first, said = looked(look_again="not needed yet")
    assert "look 1 of 2: look_again was not needed, and is not kept" in capsys.readouterr().err
    assert (said, {*snapshots}) == (["look 1 of 2 at the final examples so far, each at 1.25 %"], {4})
    for wanted in ({"splits": ["final"]}, {"splits": ["final", "development"]}):
        with pytest.raises(InputError, match="got 4 examples of the split final, wanted others: only a release gate"):
            run(spec_of(fields, gates=[], dataset=fields["dataset"] | wanted))
    with pytest.raises(InputError, match="only a release gate runs these"):
        run(spec_of(fields, gates=[], dataset={"snapshot": snapshots[4]}))
    sampled = fields["dataset"] | {"sample": 3}  # no new chance
    assert looked(dataset=sampled)[1] == ["look 2 of 2 at the final examples so far, each at 1.25 %"]
    with pytest.raises(InputError, match=r"got 2 looks .* wanted fewer than 2 \(final_looks\); --look-again REASON"):
        gate(spec_of(fields))
    for nothing in ("  ", "-", "\u200b"):
        with pytest.raises(ValidationError, match=r"look_again\n.*wanted a reason in words"):
            spec_of(fields, look_again=nothing)
        with pytest.raises(InputError, match=r"reason: got .* wanted a reason in words"):
            approve(first, reason=nothing)
    again = "look 3 at the final examples, beyond the 2 allowed: a label was wrong"
    assert looked(look_again="a label was wrong")[1] == [again]
    assert looked(look_again="another")[1] == [again, again.replace("3", "4").replace("a label was wrong", "another")]
    developed_by_gate = fields["dataset"] | {"splits": ["development"]}
    assert looked(dataset=developed_by_gate)[1] == []
    assert snapshots[8] == store.read("experiments", developed)[0].snapshot_id

    approve(first)  # another baseline: the count begins again
    (decision,) = gate(spec_of(fields))
    (row,) = store.read("experiments", store.read("decisions", decision)[0].candidate_experiment_id)
    assert (look := look_of(store, row.run_group)) and look.number == 1
    for table, owner in (("checks", look_id(row.run_group)), ("decisions", decision), ("checks", decision)):
        Path(store.layout.sealed(table, owner)).unlink()  # whoever wants one more look
    assert (unkept_looks(store, row.snapshot_id, look.since), look_of(store, row.run_group)) == ([row.run_group], None)
    second, said = looked()
    assert said == [
        "look 2 of 2 at the final examples since the baseline was approved, each at 1.25 %",
        f"1 more run of the final examples, such as {row.run_group}: rows of looks in `checks` were removed",
    ]
    with pytest.raises(
        InputError, match=rf"got 2 looks .* 1 of them, such as {row.run_group}, without a row in `checks`"
    ):
        gate(spec_of(fields))
    gone = f"an earlier decision is missing from this store: {decision}"
    (after,) = decisions_on(store, second)
    found = {one.path: one.problem for one in examine(store).findings if one.severity == "damaged"}
    assert gone in after.what_limits and found[store.layout.sealed("decisions", decision)].startswith(
        "the decision was d"
    )


def test_a_person_who_reads_single_final_examples_takes_a_look(fields: dict[str, Any]) -> None:
    def asked(*arguments: str) -> Result:
        done = CliRunner().invoke(cli, arguments)
        assert done.exit_code == 0, done.output
        return done

    targets = [SAYS_YES, {**SAYS_YES, "name": "wrong", "function": refer(says_no)}]
    (decision,) = gate(spec_of(fields, targets=targets, gate_fails_run=False))
    (candidate,) = (one.candidate_experiment_id for one in decisions_named(Store(), [decision]))
    diff = ("diff", "app-app", candidate)
    commands = ("show", candidate), ("show", candidate, "--worst", "exact_match"), diff
    for command in (*commands, ("explain", decision)):
        quiet = asked(*command)
        assert "Question" not in quiet.stdout and (command[0] == "explain" or "--final" in quiet.stdout), command
    assert asked("show", candidate).stderr == ""
    read = asked("show", candidate, "--final")
    assert "Question" in read.stdout and HIDDEN not in read.stdout
    assert "look 2 of 2 at the final examples: reading single ones counts" in read.stderr
    assert "Question" in (again := asked(*diff, "--final")).stdout and again.stderr == "", "known already"
    with pytest.raises(InputError, match="got 2 looks at the final examples"):
        gate(spec_of(fields))
    (later,) = with_limits(Store(), decisions_named(Store(), gate(spec_of(fields, look_again="a label was wrong"))))
    assert f"look 2 at the final examples: {user_name()} read single ones" in later.limits


def test_final_examples_are_final_under_any_label_id_and_name(
    fields: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Once a store has them. An agent that relabels them, or types them anew, gets no answer to them."""
    fields = {**fields, "targets": [SAYS_YES]}
    run(spec_of(fields, gates=[]))
    rows = fields["dataset"]["rows"]
    final = [row for row in rows if row["split"] == "final"]

    def disguised(row: dict[str, Any], split: str) -> dict[str, Any]:
        (text,) = map(str, row["inputs"].values())
        typed = f"\u00a0{text.upper()}".translate({ord("1"): "\uff11", ord("Q"): "Q\u200b"})
        return {**row, "id": f"new-{row['id']}", "split": split, "inputs": {"another": typed}}

    relabelled = {"name": "other", "rows": [disguised(row, "development") for row in final]}
    for refuse in (run, gate, plan):
        with pytest.raises(InputError, match="dataset 'other': got 4 examples with the inputs of final ones, such as"):
            refuse(spec_of(fields, dataset=relabelled))
    with pytest.raises(InputError, match="got 1 example with the inputs of final ones"):  # within one dataset
        run(spec_of(fields, dataset={"name": "own", "rows": [{**rows[1], "id": "x", "split": "final"}, rows[1]]}))
    picture = {"id": "p", "inputs": {"q": ""}, "attachments": {"a": {"data": "iVBOR"}}, "split": "final"}
    renamed = {"id": "x", "inputs": {"q": ""}, "attachments": {"b": {"data": "iVBOR"}}}
    with pytest.raises(InputError, match="got 1 example with the inputs of final ones"):
        run(spec_of(fields, dataset={"name": "own", "rows": [picture, renamed]}))
    capsys.readouterr()
    gate(spec_of(fields, gate_fails_run=False))
    (decision,) = gate(
        spec_of(fields, gate_fails_run=False, dataset={"rows": [disguised(row, "final") for row in final]})
    )
    (limited,) = with_limits(Store(), decisions_named(Store(), [decision]))
    assert any(limit.startswith("look 2 of 2 at the final examples") for limit in limited.limits), limited.limits


def test_near_copies_of_final_examples_are_named(fields: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """In the run, in what is shown of it, and as a limit of the decision. Examples of one template are none."""
    words = ["refund", "invoice", "parcel", "password", "delivery", "warranty", "newsletter", "account", "voucher"]
    template = "You answer the customers of a shop that sells lamps. Be brief, and name a page. The question: "

    def row(identity: str, word: str, split: str) -> dict[str, Any]:
        asked = f"{template}how do I get the {word} that I was promised on the telephone?"
        return {"id": identity, "inputs": {"question": asked}, "outputs": {"output": "yes"}, "split": split}

    rows = [row(f"final-{word}", word, "final") for word in words[:5]]
    rows += [row(word, word, "development") for word in words[5:]] + [row("copy", "refunds", "development")]
    fields = {**fields, "dataset": {"name": "shop", "rows": rows}, "targets": [SAYS_YES]}
    (developed,) = run(spec_of(fields, gates=[]))
    said = (
        "1 example resembles a final one (copy like final-refund): what is fitted to them is fitted to the final ones"
    )
    assert said in capsys.readouterr().err
    report = experiments_report(Store(), [developed], results_of(Store(), [developed]))
    assert [remark.kind for remark in report.remarks if said in remark.text] == ["copies"]
    (decision,) = with_limits(Store(), decisions_named(Store(), gate(spec_of(fields))))
    assert any(said in limit for limit in decision.limits)


def test_looks_share_the_level_of_the_rules(fields: dict[str, Any]) -> None:
    """Also where a later spec says that more are allowed than the first ones counted on."""
    store = Store()

    def level(final_looks: Any) -> tuple[float, list[str]]:
        (decision,) = with_limits(store, decisions_named(store, gate(spec_of(fields, final_looks=final_looks))))
        assert decide_again(decision.decision_id).decision_id == decision.decision_id
        return decision.confidence_level, [one for one in decision.limits if "look" in one]

    assert level([0.5, 0.3]) == (pytest.approx(0.975), ["look 1 of 2 at the final examples so far, at 1.25 %"])
    assert level([0.5, 0.3])[0] == pytest.approx(0.985)
    assert level(3)[0] == pytest.approx(0.99), "what is left of it"
    with pytest.raises(InputError, match=r"got 3 looks .*, which have spent the level; --look-again REASON"):
        gate(spec_of(fields, final_looks=10))
    with pytest.raises(ValidationError, match=r"final_looks: got shares that add up to 1\.1, wanted at most 1"):
        spec_of(fields, final_looks=[0.6, 0.5])


def test_of_several_at_once_only_one_gets_the_last_look_and_one_without_answers_counts_for_nothing(
    fields: dict[str, Any],
) -> None:
    store, spec = Store(), check_and_freeze(spec_of(fields), final=True).prepared.spec

    def take(group: str) -> bool:
        try:
            take_look(store, spec, group, None)
        except InputError:
            return False
        return True

    def started(group: str) -> bool:
        with hold_lease(store, group, "test", wait=False):
            taken.append(take(group))
            all_tried.wait(30)
            return taken[-1]

    assert all(take(f"group-crashed-{n}") for n in range(4))  # each ended at once, without an answer
    taken: list[bool] = []
    all_tried = Barrier(3)
    with ThreadPoolExecutor(3) as threads:
        [*threads.map(started, ["group-1", "group-2", "group-3"])]
    assert sorted(taken) == [False, True, True]
    assert take("group-4")  # the others have ended too
    (counted,) = ask(store, ("select count(*) from checks where name = 'final_look'", []))
    look = look_of(store, "group-4")
    assert (counted, look and look.number) == ([(7,)], 1)


def test_a_baseline_without_answers_to_the_final_examples_is_named_as_the_reason(tmp_path: Path) -> None:
    rule = {"name": "release", "non_inferiority": {"exact_match": 0.3}}
    fields = gated(tmp_path, [rule], app=drawn(60, 0.9))
    fields["dataset"]["name"] = "questions"
    for number, row in enumerate(fields["dataset"]["rows"]):
        row["split"] = "development" if number % 2 else "final"
    store = Store()

    def decided(*, by_gate: bool) -> tuple[str, list[str], str]:
        spec = spec_of(fields)
        decision_ids = gate(spec) if by_gate else None
        found = decisions_named(store, decision_ids) if decision_ids else decisions_of(store, run(spec))
        (decision,) = with_limits(store, found)
        command = after_experiments(store, [], [decision], spec="spec.yaml").command
        return decision.rules[0].text, [one for one in decision.limits if "final examples" in one], command

    text, _, command = decided(by_gate=True)
    assert "run the version to compare with by this gate, then `evalflows baseline approve" in text
    (developed,) = run(spec_of(fields, gates=[]))
    approve(developed)
    _, limits, command = decided(by_gate=True)
    assert limits[0].startswith("the baseline has no answers to the final examples: run its version by this gate")
    assert "evalflows explain" in command, "more examples would not help"
    (row,) = store.read("experiments", decisions_named(store, gate(spec_of(fields)))[0].candidate_experiment_id)
    approve(row.experiment_id)
    first = decided(by_gate=True)
    assert first[1] == ["look 1 of 3 at the final examples since the baseline was approved, each at 0.83 %"]
    approve(row.experiment_id)  # again: no other baseline
    assert decided(by_gate=True)[1] == [first[1][0].replace("1 of", "2 of")]
    _, limits, command = decided(by_gate=False)
    assert limits == [
        "the baseline has answers to the final examples, which this run leaves out: the gate compares on them"
    ]
    assert command == "evalflows gate spec.yaml"


def test_whoever_may_not_see_final_examples_sees_no_means_of_their_slices(tmp_path: Path) -> None:
    """Of two versions that are equally good, the better answers of each slice could be joined."""
    rule = {"name": "release", "non_inferiority": {"exact_match": 0.3}}
    fields = gated(tmp_path, [rule], old=drawn(80, 0.9), new=drawn(80, 0.9, seed=1))
    for number, row in enumerate(fields["dataset"]["rows"]):
        row |= {"split": "final", "metadata": {"topic": "billing" if number % 2 else "travel"}}
    gate(spec_of(fields))
    query = "select (select count(*) from slice_differences), (select count(*) from gate_decisions)"
    (all_slices, decisions), *_ = select_from(Store(), query).fetchall()
    assert (all_slices > 1, decisions) == (True, 1)
    assert select_from(Store(), query, with_final=False).fetchall() == [(0, 1)]
