"""A judge that changes behind its model's name: its anchors show it, gates do not take it for a change of the system,
and the baseline's answers can be judged again."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from catalog_rows import one, rows
from endpoint import Endpoint, Reply, Request, completion, serving
from gated import decided, drawn, gated
from made_traces import traces, write

from evalflows import approve, evaluate_traces, plan, run
from evalflows.engine.anchors import read_anchors
from evalflows.reports.previous_runs import previous_runs
from evalflows.specs import ExperimentSpec, InputError
from evalflows.specs.evaluator import AnchorsSpec
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.store import Store

pytestmark = pytest.mark.usefixtures("without_prefect")

N = 200


class Judge:
    """A judge that accepts `yes`, from its change on `nearly` too; the name of its model stays."""

    accepts: tuple[str, ...] = ("yes",)
    fingerprint = "fp_1"

    def __call__(self, request: Request) -> Reply:
        shown = "\n".join(str(message["content"]) for message in request["messages"])
        said = next(word for word in ("nearly", "never", "yes") if f'"{word}"' in shown or f"\n{word}\n" in shown)
        reply = completion(json.dumps({"reasoning": "as it is", "correct": said in self.accepts}))
        reply.body["system_fingerprint"] = self.fingerprint
        return reply

    def change(self) -> None:
        self.accepts, self.fingerprint = ("yes", "nearly"), "fp_2"


def anchors(folder: Path) -> str:
    """Sixty answers, a third of each kind, of which only `yes` is right."""
    path = folder / "anchors.jsonl"
    kinds = ("yes", "nearly", "never")
    asked = [{"inputs": {"q": f"Anchor {n}?"}, "outputs": {"a": kinds[n % 3]}, "known": n % 3 == 0} for n in range(60)]
    path.write_text("\n".join(json.dumps({**row, "reference_outputs": {"a": "yes"}}) for row in asked))
    return str(path)


def answers(yes: float, nearly: float, seed: int) -> np.ndarray[Any, Any]:
    said = np.where(drawn(N, yes, seed), "yes", "never")
    others = np.flatnonzero(said == "never")
    said = said.astype("U6")
    said[np.random.default_rng(seed).choice(others, round(nearly * N), replace=False)] = "nearly"
    return said


def judged(folder: Path, endpoint: Endpoint, gate: dict[str, Any], **answered: Any) -> dict[str, Any]:
    fields = gated(folder, [{"name": "release", **gate}] if gate else [], **answered)
    judge = {"use": "correctness", "name": "right", "connection": "judge", "anchors": anchors(folder)}
    connection = {"kind": "endpoint", "base_url": endpoint.base_url, "model": "judge-1"}
    return fields | {"evaluators": [judge], "connections": {"judge": connection}}


@pytest.mark.slow
def test_a_gate_does_not_take_a_changed_judge_for_an_equal_candidate(tmp_path: Path) -> None:
    judge, rule = Judge(), {"non_inferiority": {"right": 0.05}}
    with serving(Endpoint(answer=judge)) as endpoint:
        better = ExperimentSpec.model_validate(judged(tmp_path, endpoint, {}, v1=answers(0.7, 0.2, 1)))
        assert {(line.caller, line.fixed) for line in plan(better).calls} >= {("right: anchors", 30)}
        (first,) = run(better)
        approve(first)
        (again,) = run(better)
        anchored = "select count(*), sum(abs(value - known)) from staging.sentinels where experiment_id = ?"
        assert [one(anchored, identity) for identity in (first, again)] == [(30, 0.0)] * 2
        assert endpoint.calls == N + 30 + 30 + 1, "anchors are judged anew, answers are not"

        judge.change()
        worse = answers(0.4, 0.3, 2)  # 30 points worse, and by the lenient judge as good as the baseline was
        refused = decided(judged(tmp_path, endpoint, rule, v2=worse))
        assert refused.conclusion == "NOT ENOUGH EVIDENCE"
        assert [result.reason_code for result in refused.rules] == ["judge_drifted"]
        assert refused.summary.startswith("right: refused: the judge of right has drifted since 20")
        said = " ".join(refused.what_limits)
        assert "with another system_fingerprint: fp_1 then, fp_2 now" in said

        decides = decided(judged(tmp_path, endpoint, {**rule, "judge_drift": "rejudge"}, v3=worse))
        assert decides.conclusion == "FAIL", decides.summary
        assert "-0.2" in decides.summary, "nine tenths against seven, both by today's judge"
        assert any("judged the answers of both sides again" in limit for limit in decides.what_limits)
        drifts = rows(
            "select changed, n_anchors, error_before from judge_drift where metric = 'right' order by checked_at"
        )
        assert drifts[:3] == [("none", 30, None), ("none", 60, None), ("judge", 90, pytest.approx(0, abs=0.1))]


@pytest.mark.slow
def test_the_same_answers_are_not_better_because_the_judge_is_another(tmp_path: Path, store: Store) -> None:
    judge = Judge()
    with serving(Endpoint(answer=judge)) as endpoint:
        fields = judged(tmp_path, endpoint, {}, v1=answers(0.6, 0.3, 1))
        fields["evaluators"] = [{**fields["evaluators"][0], "anchors": None}]
        spec = ExperimentSpec.model_validate(fields | {"use_cache": False})
        (first,) = run(spec)
        judge.change()
        (again,) = run(spec)
        (since,) = previous_runs(store, [(again, first)])
        fields |= gated(tmp_path, [], v1=answers(0.9, 0.05, 2)) | {"evaluators": fields["evaluators"]}
        (improved,) = run(ExperimentSpec.model_validate(fields | {"use_cache": False}))
        (other,) = previous_runs(store, [(improved, first)])
    assert "right 0.600 → 0.900, the answers are the same: the judge differs; the provider of judge-1" in since.sentence
    assert since.sentence.endswith("with another system_fingerprint: fp_1 then, fp_2 now")
    (metric,) = since.metrics
    assert (metric.conclusion, metric.reason_code) == ("not_enough_evidence", "only_judge_differs")
    assert other.metrics[0].conclusion == "better" and "fp_1 then, fp_2 now" in other.sentence


@pytest.mark.slow
def test_production_tells_a_changed_judge_from_a_changed_system(tmp_path: Path, store: Store) -> None:
    judge = Judge()
    with serving(Endpoint(answer=judge)) as endpoint:
        fields = judged(tmp_path, endpoint, {}, v1=answers(0.7, 0.2, 1))
        evaluator = {**fields["evaluators"][0], "anchors": {"dataset": anchors(tmp_path), "share": 0.5}}
        spec = TraceEvaluationSpec.model_validate(
            {"name": "answers", "evaluators": [evaluator], "connections": fields["connections"], "settle_s": 0}
        )
        said = ["yes", "nearly", "yes", "never"]
        for batch in range(4):
            if batch == 2:
                judge.change()
            write(store, [row for n in range(100) for row in traces(1, first=100 * batch + n, output=said[n % 4])])
            evaluate_traces(spec)
        assert one("select count(*), count(distinct run_id) from staging.sentinels") == (200, 4)
        assert [changed for (changed,) in rows("select changed from judge_drift order by checked_at")][:2] == [
            "none"
        ] * 2
        assert "judge" in [changed for (changed,) in rows("select changed from judge_drift order by checked_at")]
        assert rows("select distinct kind, metric, state from incidents") == [("judge_drift", "right", "open")]


def test_a_file_that_has_no_anchors_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    endpoint = Endpoint()
    endpoint.base_url = "http://127.0.0.1:9/v1"
    fields = judged(tmp_path, endpoint, {}, v1=answers(0.7, 0.2, 1))
    (tmp_path / "anchors.jsonl").write_text('{"inputs": {"q": "a?"}, "outputs": "yes"}\n')
    with pytest.raises(InputError, match=r"anchors\.jsonl:1: got inputs, outputs, wanted known: an anchor is"):
        run(ExperimentSpec.model_validate(fields))
    (tmp_path / "anchors.jsonl").write_text('{"inputs": {"q": "a?"}, "outputs": ["yes", "no"], "known": "first"}\n')
    with pytest.raises(InputError, match=r"anchors of 'right': .*: outputs: got a list, wanted one answer"):
        run(ExperimentSpec.model_validate(fields))
    assert rows("select count(*) from staging.snapshots") == [(0,)]
    (tmp_path / "anchors.jsonl").write_text('{"inputs": {"q": "a?"}, "outputs": "yes", "known": "tie"}\n')
    (anchor,) = read_anchors(Store(), AnchorsSpec(dataset=str(tmp_path / "anchors.jsonl")))
    assert '"known":"tie"' in (anchor.metadata or ""), "a label of one answer, no score of a pair"
