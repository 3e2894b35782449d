"""Functions that compare the answers of all candidates to an example at once."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from endpoint import Endpoint, Reply, Request, completion, serving
from judges_of_pairs import ASKED, best_of, ranked
from matched import FAILED, asked, experiment, judgements
from pairwise_runs import NAMES, N, answered, judged_by

from evalflows import compare, evaluate_comparative
from evalflows.specs import InputError
from evalflows.specs.comparison import load_comparison

pytestmark = pytest.mark.usefixtures("without_prefect", "short_pauses")

CANDIDATES = ["target of a", "target of b", "target of c"]


def down_for_one(request: Request) -> Reply:
    return Reply({}, status=500) if "q05?" in request["messages"][-1]["content"] else completion("ok")


@pytest.mark.slow
def test_all_candidates_are_scored_by_one_call_of_an_example_also_after_a_resume(tmp_path: Path) -> None:
    ASKED.clear()
    experiments, path = answered("a", "b", "c"), tmp_path / "all.yaml"
    best = {"use": "judges_of_pairs:best_of", "connection": "mock"}
    of_all = {"use": "judges_of_pairs:ranked", "compares": "all"}
    with serving(Endpoint(answer=down_for_one)) as endpoint:
        fields = judged_by(endpoint, experiments, evaluators=[best, of_all], name="all", chunk_retries=0)
        path.write_text(yaml.safe_dump(fields.model_dump(mode="json", exclude_unset=True)))
        identity = compare(load_comparison(path))
        down, rows = endpoint.calls - endpoint.repeated(), judgements(identity)
        assert down == N - 1, "one call of an example, and none of that to which it does not apply"
        endpoint.answer = lambda _: completion("ok")
        calls = endpoint.calls
        compare(load_comparison(path), resume=identity)
        assert endpoint.calls == calls + 1, "what failed only"
    odd = {(row.example_id, row.status, row.error) for row in rows if row.status != "scored"}
    assert {(name, status, error) for name, status, error in odd if name != "q04"} == {
        ("q03", "not_applicable", None),
        ("q05", "failed", "HTTP 500: {}"),
    }
    (bad,) = {str(error) for name, _, error in odd if name == "q04"}
    assert bad.startswith("ValueError: returned scores for ['target of ") and ", 'who'], wanted one for each of " in bad
    assert {tuple(sorted(shown)) for shown in ASKED} == {tuple(CANDIDATES)} and len({*ASKED}) > 1, "in random orders"
    after = judgements(identity)
    assert len(after) == len({row.judgement_id for row in after}) == 2 * 3 * N
    assert {row.order_status for row in after if row.status == "scored"} == {"drawn"}
    one = {row.left_run_id: row.left_score for row in after if row.metric == "best_of" and row.example_id == "q00"}
    assert len(one) == 2 and sum(row.calls or 0 for row in after if row.metric == "best_of") == N - 1
    ranks = [(row.left_score, row.right_score) for row in after if row.metric == "ranked" and row.example_id == "q00"]
    assert ranks == [(-3, -2), (-3, -1), (-2, -1)]
    comments = {row.comment for row in after if row.metric == "ranked"}
    assert comments == {f"{x}!\n{y}!" for x in "abc" for y in "abc" if x != y}, "of the two, in the order shown"
    rates = "select metric, candidate, baseline, win_rate from win_rates where slice = 'all' and not length_controlled"
    assert {*asked(rates)} == {
        (metric, new, old, 1.0) for metric in ("best_of", "ranked") for old, new in ("ab", "ac", "bc")
    }
    assert asked("select experiment from leaderboard where metric = 'ranked' order by rank") == [("c",), ("b",), ("a",)]


@pytest.mark.slow
def test_from_python_functions_get_what_was_answered_in_both_orders_if_wanted() -> None:
    experiments = [
        experiment(name, {one: FAILED if name == "b" and one == "q01" else name * place for one in NAMES}, place=place)
        for place, name in enumerate("abc", 1)
    ]
    shown: list[list[str]] = []

    def first_of(inputs: dict[str, Any], candidates: dict[str, Any]) -> list[float]:
        shown.append([name[-1] for name in candidates])
        return [float(len(candidates) - place) for place in range(len(candidates))]

    found = evaluate_comparative(
        experiments, [first_of, {"use": ranked, "name": "by_rank", "compares": "all"}], both_orders=True
    )
    assert sorted(shown) == sorted([["a", "b", "c"], ["c", "b", "a"]] * (N - 1) + [["a", "c"], ["c", "a"]])
    outcomes = {(pair["metric"], pair["outcome"], pair["decided_by"]) for pair in found}
    assert ("first_of", "flipped", None) in outcomes and ("ranked", "right", None) in outcomes
    biases = "select passed from judge_biases where metric = 'first_of' and bias = 'flip_share'"
    assert asked(biases) == [(False,)], "a preference for the place is seen"
    for evaluators, wanted in (
        ([{"use": "pairwise_preference", "compares": "all"}], "compares: got all with pairwise_preference, which"),
        ([{"use": best_of, "connection": "local", "timeout_s": 1}], "timeout_s: got it for an evaluator that"),
    ):
        with pytest.raises(InputError, match=wanted):
            evaluate_comparative(experiments, evaluators)
