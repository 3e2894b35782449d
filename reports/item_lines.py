"""One example and its answers in a few lines, for the command line and for failed tests."""

import json
from collections.abc import Iterator
from textwrap import wrap
from typing import Any

from evalflows.reports.figures import figure
from evalflows.reports.worst_items import WorstItem
from evalflows.specs.safe_text import one_line


def item_lines(item: WorstItem, metric: str, *, compared: bool, width: int, most: int = 1) -> Iterator[str]:
    """Yield the values and the question, then the answers, and what the evaluator said or the error.

    Each text has at most `most` lines of `width` characters, and is cut with an ellipsis.
    """
    begin = f"{one_line(item.example_id)}: {item_values(item, metric, compared=compared)}  "
    yield from cut_lines(begin, plain_text(item.inputs), width, most, indent=2)
    for name, text in item_texts(item, compared=compared):
        yield from cut_lines(f"    {name}: ", text, width, most)


def item_values(item: WorstItem, metric: str, *, compared: bool) -> str:
    """Return the value, after that of the baseline if they are compared: `was 1, now 0`."""
    now = value_text(item.value, item.missing, metric)
    return f"was {value_text(item.baseline_value, item.baseline_missing, metric)}, now {now}" if compared else now


def item_texts(item: WorstItem, *, compared: bool) -> Iterator[tuple[str, str]]:
    """Yield the answers, and what the evaluator said or the error, each with its name."""
    yield "answer", plain_text(item.outputs)
    if compared:
        yield "baseline", plain_text(item.baseline_outputs)
    baseline_error = None if item.baseline_error == item.error else item.baseline_error
    for name, text in (("comment", item.comment), ("error", item.error), ("baseline's error", baseline_error)):
        if text:
            yield name, text


def value_text(value: float | None, missing: int, metric: str) -> str:
    """Format an example's value, without zeros at its end, and the number of repetitions that lack one."""
    if value is None:
        return "missing" if missing else "-"
    text = figure(value, metric)
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return text + (f" ({missing} missing)" if missing else "")


def cut_lines(begin: str, text: str, width: int, most: int, indent: int = 6) -> list[str]:
    """Wrap a text between words, with `begin` before it; at most `most` lines, cut with an ellipsis."""
    line = " ".join(text.split())
    return wrap(
        f"{begin}{line}",
        width,
        max_lines=most,
        placeholder=" …",
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
    )


def plain_text(text: str | None) -> str:
    """Return JSON as text on one line; an object with a single field as that field's value."""
    if text is None:
        return "-"
    value: Any = json.loads(text)
    if isinstance(value, dict) and len(value) == 1:
        (value,) = value.values()
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
