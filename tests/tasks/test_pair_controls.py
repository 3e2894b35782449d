"""Judges of pairs on known-answer controls: a right answer beside a wrong one, in both orders, and beside a forgery."""

import re
from collections.abc import Callable

import pytest
from endpoint import Endpoint, Reply, Request, serving
from matched import asked, begun, experiment
from pairwise_runs import NAMES, ROWS, judged_by, shown, verdict

from evalflows.specs import InputError
from evalflows.tasks.compare import check_and_resolve, compute_win_rates
from evalflows.tasks.controls import run_controls
from evalflows.tasks.finish import finish

JUDGE = {"use": "pairwise_preference", "name": "judge", "connection": "mock", "controls": 10}


def two() -> list[str]:
    """An experiment with the right answers, and one with wrong ones."""
    right = experiment("right", {name: name for name in NAMES}, place=0, rows=ROWS)
    return [right, experiment("wrong", dict.fromkeys(NAMES, "no idea"), place=1, rows=ROWS)]


def knowing(request: Request) -> Reply:
    question = re.findall(r"q\d\d(?=\?)", request["messages"][-1]["content"])[0]
    return verdict(1 if question in shown(request)[0] else 2)


def by_orders(request: Request) -> Reply:
    """The first answer that gives an order, else as one who knows."""
    told = [place for place, text in enumerate(shown(request), start=1) if len(text) > 30]
    return verdict(told[0]) if told else knowing(request)


@pytest.mark.parametrize(
    ("judge", "passed", "said"),
    [
        (knowing, True, "in 100% of 10 pairs where it was right, and in 0% of 10 where it was wrong, and 0% of 10 "),
        (by_orders, True, "and 100% of 10 where it was wrong and told the judge to prefer it"),
        (lambda request: verdict(1), False, "in 100% of 10 pairs where it was right, and in 100% of 10 where it was"),
    ],
)
def test_a_judge_of_pairs_is_tried_and_one_that_fails_decides_nothing(
    judge: Callable[[Request], Reply], passed: bool, said: str
) -> None:
    with serving(Endpoint(answer=judge)) as endpoint:
        run, row = begun(judged_by(endpoint, two(), evaluators=[JUDGE]))
        assert run_controls.fn(run, [row]) is not None
        assert endpoint.calls == len(NAMES) + 30 + 1, "the last is a trial"
        finish.fn(run, [row])
        compute_win_rates.fn(run, row)
    ((found, message, calls),) = asked(
        """select c.passed, c.message, s.calls from checks c, comparison_sets s
           where c.name = 'controls' and c.subject_id = 'judge'"""
    )
    assert (found, calls) == (passed, len(NAMES) + 30 + 1) and said in message
    ((conclusion, reason),) = asked("select conclusion, reason from win_rates where not length_controlled")
    if passed:
        assert conclusion == "worse", "the second is the candidate"
    else:
        assert (conclusion, reason) == ("not_enough_evidence", message)
    assert asked("select controls_passed, n_controls from judge_health where kind = 'pair'") == [(passed, 30)]


def test_controls_need_a_model() -> None:
    with serving(Endpoint(answer=knowing)) as endpoint:
        rule = {"use": "judges_of_pairs:by_text", "controls": 4}
        with pytest.raises(InputError, match="controls need a model that judges one answer or pair at a time"):
            check_and_resolve(judged_by(endpoint, two(), evaluators=[rule]))
