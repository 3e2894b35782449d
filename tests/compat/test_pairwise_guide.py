"""A program as for LangSmith's guide to pairwise evaluation, with other import lines."""

import json
import re
import shutil
from pathlib import Path

import pytest
from catalog_rows import rows
from endpoint import Endpoint, Reply, Request, completion, serving
from user_programs import has_written, run_program

PROGRAMS = Path(__file__).parent / "programs" / "langsmith_pairwise"
QUESTIONS = re.findall(r'"(Which .*\?)"', (PROGRAMS / "experiments.py").read_text(encoding="utf-8"))


def winner(question: str) -> str:
    """Whose answer is better, by who answers it well."""
    return ("terse", "thorough", "tie")[QUESTIONS.index(question) % 3]


def answer(request: Request) -> Reply:
    """Who is better is sure of the knot, and the judge prefers whoever is sure."""
    system, user = (message["content"] for message in request["messages"])
    if request["model"] != "judge-1":
        who = "thorough" if "how it is tied" in system else "terse"
        return completion("It is that one." if winner(user) in (who, "tie") else "Perhaps that one.")
    assert request["response_format"]["type"] == "json_schema"
    first, second = ("It is" in line for line in user.splitlines()[1:])
    preferred = 0 if first == second else 1 if first else 2
    return completion(json.dumps({"reasoning": "Who is sure knows.", "preferred": preferred}))


@pytest.mark.usefixtures("without_prefect")
def test_the_program_of_the_pairwise_guide(tmp_path: Path) -> None:
    shutil.copytree(PROGRAMS, tmp_path, dirs_exist_ok=True)
    with serving(Endpoint(latency_s=0.1, answer=answer)) as endpoint:
        names = run_program(tmp_path, endpoint, "experiments.py").split()
        assert [name.rpartition("-")[0] for name in names] == ["terse", "thorough"]
        assert endpoint.calls == 18 and endpoint.peak == 1
        run_program(tmp_path, endpoint, "ranked.py", *names)
        asked = [request["messages"][1]["content"] for request in endpoint.requests[18:]]
        assert endpoint.calls == 27 and 1 < endpoint.peak <= 4

    found = rows(
        """select e.inputs ->> 'question', c.winner, c.shown_first, c.left_score, c.right_score, l.name
           from comparisons c join examples e using (example_id)
           join experiments l on l.experiment_id = c.left_experiment_id where metric = 'ranked_preference'""",
    )
    assert len(found) == 9 and {row[5] for row in found} == {"terse"}
    scores = {"left": (1, 0), "right": (0, 1), "tie": (0, 0)}
    sides = {"terse": "left", "thorough": "right", "tie": "tie"}
    for question, won, first, *scored, _ in found:
        assert won == sides[winner(question)] and (scored[0], scored[1]) == scores[won], question
        (shown,) = (text.splitlines() for text in asked if question in text)
        if won != "tie":
            assert ("It is" in shown[1]) == (first == won), "it is kept which came first"

    calls = "select evaluator, connection, model, status, sum(tokens_in), count(*) from calls group by all order by all"
    assert rows(calls) == [
        ("ranked_preference", "wrapped", "judge-1", "ok", 90, 9),
        (None, "wrapped", "sailor-1", "ok", 180, 18),
    ]
    sets = "select name, n_shared, randomize_order, both_orders, calls, state from comparison_sets"
    ((name, *settings),) = rows(sets)
    assert re.fullmatch(rf"{names[0]} vs\. {names[1]}-[0-9a-f]{{4}}", name)
    assert settings == [9, True, False, 9, "completed"]
    assert not has_written(tmp_path, b"sk-of-a-test")
