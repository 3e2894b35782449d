"""Environment variables in paths and headers."""

from pathlib import Path

import pytest

from evalflows.specs.errors import InputError
from evalflows.specs.files import filled, located


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "/data")
    monkeypatch.setenv("KEY_1", "sk-secret")
    monkeypatch.setenv("BLANK", "")
    monkeypatch.setenv("TRICKY", r"${PLACE} \1 \g<0> $PLACE")
    monkeypatch.delenv("UNSET", raising=False)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("${PLACE}/rows.csv", "/data/rows.csv"),
        ("${PLACE}${KEY_1}${PLACE}", "/datask-secret/data"),
        ("Bearer ${KEY_1}", "Bearer sk-secret"),
        ("[${BLANK}]", "[]"),
        ("", ""),
        ("nothing here", "nothing here"),
    ],
)
def test_each_variable_is_replaced_by_its_value(text: str, wanted: str) -> None:
    assert filled(text, "where") == wanted


@pytest.mark.parametrize("text", ["$PLACE", "${}", "${ PLACE }", "${UN-SET}", "${PLACE", "{PLACE}", "$${", "%PLACE%"])
def test_what_only_looks_like_a_variable_stays(text: str) -> None:
    assert filled(text, "where") == text


def test_a_variable_that_is_not_set_is_named_and_no_value_is_told() -> None:
    with pytest.raises(InputError) as caught:
        filled("${KEY_1} ${UNSET}", "target 'x': headers: Authorization")
    assert str(caught.value) == "target 'x': headers: Authorization: the environment variable UNSET is not set"


def test_a_path_fills_variables_and_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("PLACE", "~/data")
    assert located("~/rows.csv") == Path("/home/me/rows.csv")
    assert located("${PLACE}/rows.csv") == Path("/home/me/data/rows.csv")
    assert located("a/~/rows.csv") == Path("a/~/rows.csv")
    with pytest.raises(InputError) as caught:
        located("${UNSET}/rows.csv")
    assert str(caught.value) == "${UNSET}/rows.csv: the environment variable UNSET is not set"
