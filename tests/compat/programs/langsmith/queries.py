"""Run evals with pytest."""

import openai
import pytest

from evalflows.compat.langsmith import expect, traceable, wrappers
from evalflows.compat.langsmith import testing as t

oai_client = wrappers.wrap_openai(openai.OpenAI())


@traceable
def generate_query(user_query: str) -> str:
    result = oai_client.chat.completions.create(
        model="writer-1",
        messages=[
            {"role": "system", "content": "Turn the request into SQL over the table ships. Say `no` if it is none."},
            {"role": "user", "content": user_query},
        ],
    )
    return result.choices[0].message.content


@pytest.mark.langsmith
def test_query_for_all_ships() -> None:
    user_query = "All ships, please"
    t.log_inputs({"user_query": user_query})
    expected = "SELECT * FROM ships;"
    t.log_reference_outputs({"sql": expected})
    sql = generate_query(user_query)
    t.log_outputs({"sql": sql})

    with t.trace_feedback():
        grade = oai_client.chat.completions.create(
            model="judge-1",
            messages=[
                {"role": "system", "content": "Is this valid SQL? Say 1 or 0."},
                {"role": "user", "content": sql},
            ],
        )
        t.log_feedback(key="valid_sql", score=int(grade.choices[0].message.content))

    assert sql == expected


@pytest.mark.langsmith(output_keys=["expected_sql"])
@pytest.mark.parametrize(
    ("user_query", "expected_sql"),
    [
        ("Ships from Bergen", "SELECT * FROM ships WHERE home = 'Bergen';"),
        ("Whatever comes next", "no"),
    ],
)
def test_queries(user_query: str, expected_sql: str) -> None:
    sql = generate_query(user_query)
    t.log_outputs({"sql": sql})
    expect.edit_distance(sql, expected_sql).to_be_less_than(0.5)
    expect(sql).to_contain(expected_sql[:2])
    expect.score(float(sql == expected_sql), key="exact").to_be_greater_than(-1)


@pytest.mark.langsmith(test_suite_name="Harbour refusals", metadata={"kind": "refusal"})
def test_off_topic_input() -> None:
    t.log_inputs({"user_query": "What is for dinner?"})
    sql = generate_query("What is for dinner?")
    t.log_outputs({"sql": sql})
    t.log_feedback(key="refused", score=sql == "no")
    assert sql == "no", "it should not have answered"
