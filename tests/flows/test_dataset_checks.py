"""Dataset checks of a run: it pays nothing before their verdict."""

from typing import Any

import pytest
from catalog_rows import rows

from evalflows import evaluate
from evalflows.data_checks import checks
from evalflows.specs import DatasetSpec
from evalflows.specs.errors import InputError

TOPICS = {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "metadata.topic", "value_set": ["login"]}}
ROWS = [{"inputs": {"question": "q1"}, "metadata": {"topic": "weather"}}]


@pytest.fixture
def asked() -> list[str]:
    return []


def run(asked: list[str], severity: str = "critical") -> None:
    """Run a target that counts its calls, and a judge that would be paid."""

    def target(question: str) -> str:
        asked.append("target")
        return question

    def judge(outputs: Any) -> bool:
        asked.append("judge")
        return True

    dataset = DatasetSpec.model_validate({"rows": ROWS, "expectations": [TOPICS | {"severity": severity}]})
    evaluate(target, dataset, [judge], experiment_prefix="checked")


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_api")
def test_nothing_is_called_before_the_verdict(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):  # the second time the verdict is known
        with pytest.raises(InputError, match=r"wanted metadata.topic: .*; 1 of 1 fail, such as 'weather'$"):
            run(asked)
        monkeypatch.setattr(checks, "suite_results", None)
    assert asked == []
    assert rows("select count(*) from experiments") == [(0,)]
    assert rows("select count(*) from checks where flow_run_id is null") == [(0,)]
