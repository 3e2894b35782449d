"""Reading a number: the last one of a text, and never half of something else."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalflows.evaluators.numbers import number_in


def read(value: Any) -> Decimal | None:
    number = number_in(value)
    return None if number is None else number.value


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *[("The answer is 42.", "42"), ("42", "42"), (" 3.0\n", "3"), (".5", ".5"), ("It is...5", "5"), ("+7", "7")],
        *[("-5", "-5"), ("\u22125", "-5"), ("\u20135", "-5"), ("(-5)", "-5"), ("x=-5", "-5"), ("Answer:-5", "-5")],
        *[("1,234.5", "1234.5"), ("1,234,567", "1234567"), ("12,34,567", "1234567"), ("1'234'567.8", "1234567.8")],
        *[("1\u202f234", "1234"), ("1\u00a0234\u00a0567", "1234567"), ("1_000", "1000"), ("1234567", "1234567")],
        *[("$1,234", "1234"), ("-$5", "-5"), ("$-5", "-5"), ("US$5", "5"), ("5 €", "5"), ("5€", "5"), ("£3.50", "3.5")],
        *[("50%", "50"), ("50 %", "50"), ("12.5 percent", "12.5")],
        *[("1e5", "100000"), ("1.5E-3", ".0015"), ("6.02e+23", "6.02e23"), ("1e\u22125", ".00001")],
        *[("1.5 x 10^8 m", "1.5e8"), ("1.5\u00d710^-3", ".0015"), ("2 \\times 10^{5}", "2e5"), ("2·10⁻³", ".002")],
        *[("10^3", "1000"), ("10³", "1000"), ("-10^3", "-1000"), ("1,500 * 10**3", "1500000")],
        *[("42km", "42"), ("4th", "4"), ("20°C", "20"), ("1990s", "1990"), ("5 m²", "5"), ("$5/month", "5")],
        *[("**42**", "42"), ("_42_", "42"), ("`42`", "42"), ("$42$", "42"), ("\\boxed{42}", "42"), ("#### 18", "18")],
        *[("4+4=8", "8"), ("10 ± 2", "10"), ("10±0.5", "10"), ("答案是42个", "42"), ("٤٢", "42"), ("４２", "42")],  # noqa: RUF001
        *[("3/4", ".75"), ("-3/4", "-.75"), ("about 1/8 of it", ".125"), ("1 3/4", "1.75"), ("-1 3/4 m", "-1.75")],
        *[("10 000", "10000"), ("-1 234.5", "-1234.5"), ("$1 234 567 in 2024 100", "100"), ("v1 234", "234")],
    ],
)
def test_a_number_is_read_however_it_is_written(text: str, number: str) -> None:
    assert read(text) == Decimal(number)


@pytest.mark.parametrize(
    "text",
    [
        *("", "half", "NaN", "inf", "-", ".", "%", "$"),
        *("GPT4", "GPT-4", "H2O", "COVID-19", "C++11", "0x1F", "x^2", "m2", "5-year", "v1.2", "co2", "A4_2"),
        *("2024-05-17", "17/05/2024", "17.05.2024", "10:30", "12:30:15", "1.2.3", "192.168.0.1"),
        *("3-5", "3\u20135", "$3-$5", "12%-15%", "3+4", "3*4", "2^10", "2⁵", "1½", "¾"),
        *("3,14", "1.234,5", "0,234", "1,2,3", "1,234,56", "3/0", "1 3/0", "1/2/3"),
        *("1. Paris", "1) Paris\n2) Lyon", "1. **Paris**\n2. Lyon\n\n1. Rome", "- **1.** Paris", "(1) Paris"),
    ],
)
def test_what_is_part_of_something_else_is_no_number(text: str) -> None:
    assert read(text) is None
    assert read(f"7\n{text}") == 7


def test_the_last_number_counts_but_those_of_a_list() -> None:
    assert read("2 apples and 3 pears are 5 in all") == 5
    assert read("5 is the sum of 2 and 3") == 3
    assert read("1. Paris has 20 districts\n2. Lyon") == 20
    assert read("1. Paris\n2. Lyon: 9") == 9
    assert read("1. First, 4\n2. then 6") == 6
    assert read("42. That is the answer.") == 42
    assert read("So it is\n4. ") == 4
    assert read("1.5 apples") == Decimal("1.5")


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_is_read_as_it_is_written(number: float) -> None:
    assert read(f"so {number!r}") == read(number) == Decimal(repr(number))


@given(st.text(alphabet="0123456789.,-+/:^*x×eE $%()[]_'’\u00a0\u2212\n±e", max_size=30))  # noqa: RUF001
def test_no_text_is_an_error(text: str) -> None:
    number = read(text)
    assert number is None or number.is_finite()


def test_huge_numbers_are_exact_and_quick() -> None:
    digits = "9" * 100_000
    assert read(f"{digits}7") != read(f"{digits}8")
    assert read(f"1e{digits}") is None
    assert read(10**5000) == Decimal(10) ** 5000


@pytest.mark.parametrize("unit", ["-", "*", "1,", "1.", "1/", "1x", "1 x 10", "$", "± ", " ", "1. a\n", "_", "1'"])
def test_no_text_takes_long(unit: str) -> None:
    read("1" + unit * 50_000 + "x")
