"""Lines and rows that are kept on disk."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalflows.store import spilled
from evalflows.store.spilled import SpilledLines, SpilledRows


def test_threads_read_and_write_at_once() -> None:
    lines = SpilledLines()
    texts = [f"{number}-" * (number % 50) for number in range(2000)]

    def there_and_back(text: str) -> bool:
        return lines[lines.append(text.encode())] == text.encode()

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(there_and_back, texts))


def test_the_last_row_of_a_key_counts() -> None:
    rows = SpilledRows[tuple[str, int], dict[str, object]]()
    rows["a", 0] = {"answer": 1}
    rows["a", 1] = {"answer": 2}
    rows["a", 0] = {"answer": 3}
    assert (rows.get(("a", 0)), rows.get(("a", 1)), rows.get(("b", 0))) == ({"answer": 3}, {"answer": 2}, None)
    assert ("a", 1) in rows
    assert ("b", 1) not in rows


@given(st.lists(st.binary(max_size=8)), st.lists(st.integers(0, 30)))
def test_lines_are_read_in_any_order_at_once(given_lines: list[bytes], wanted: list[int]) -> None:
    lines = SpilledLines.of(given_lines)
    assert [*lines] == given_lines
    numbers = [number % len(lines) for number in wanted] if given_lines else []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spilled, "READ_AHEAD", 10)
        assert [*lines.at(numbers)] == [(number, given_lines[number]) for number in numbers]
    lines.append(b"last")
    assert [*lines] == [*given_lines, b"last"]
