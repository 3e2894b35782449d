"""Tables at any width: no word or id is broken, and what does not fit is laid out in another way."""

import io
import re

from evalflows.cli.output import Console, Table, Text, table

ID = "exp-01m84dts8vq0cae2rqr0mhwtsa"


def printed(out: Table, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False, emoji=False)
    console.print(out)
    assert isinstance(console.file, io.StringIO)
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    assert all(len(line) <= width for line in lines)
    return lines


def results() -> Table:
    out = table("metric", "system", "mean", "note", headings=2, wrapped=("note",))
    out.columns[2].justify = "left"
    out.add_row("contains", "long", "0.80 [0.70, 0.90]", "")
    out.add_row("contains", "brief", "0.90 [0.80, 1.00]", Text("better than it was before, by a little", "bold"))
    out.add_row("helpful", "brief", "0.10 [0.00, 0.20]", ID)
    return out


def test_the_first_column_becomes_headings() -> None:
    assert printed(results(), 60) == [
        "metric",
        "  system  mean               note",
        "contains",
        "  long    0.80 [0.70, 0.90]",
        "  brief   0.90 [0.80, 1.00]  better than it was before, by a",
        "                             little",
        "helpful",
        f"  brief   0.10 [0.00, 0.20]  {ID}",
    ]


def test_else_each_row_is_a_block() -> None:
    assert printed(results(), 40) == [
        *("metric  contains", "system  long", "mean    0.80 [0.70, 0.90]", ""),
        *("metric  contains", "system  brief", "mean    0.90 [0.80, 1.00]"),
        *("note    better than it was before, by a", "        little", ""),
        *("metric  helpful", "system  brief", "mean    0.10 [0.00, 0.20]", f"note    {ID}"),
    ]


def test_no_word_is_broken_at_any_width() -> None:
    for width in range(40, 130, 3):
        words = " ".join(printed(results(), width)).split()
        assert words.count(ID) == 1 and words.count("contains") >= 1
        assert {*re.findall(r"[a-z]+", " ".join(words))} >= {"better", "than", "before", "little", "brief", "helpful"}


def test_wide_characters_count_twice() -> None:
    out = table("name", "next")
    out.add_row("日本語", "a")
    assert printed(out, 12)[1] == "日本語  a"
