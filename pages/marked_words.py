"""Which words of the answers in a table differ from the baseline's."""

from collections.abc import Sequence

from evalflows.pages.texts import IN_TABLE, shown_text
from evalflows.reports.side_by_side import Answer, ComparedRow
from evalflows.reports.word_diff import WordDiff, word_diff


def marked(rows: Sequence[ComparedRow], baseline: str) -> dict[tuple[str, str], WordDiff]:
    """Return the words of each answer that is not the baseline's, by example and experiment."""
    return {
        (row.example_id, owner): words
        for row in rows
        for owner, side in row.sides.items()
        if owner != baseline and (words := _words(row.sides[baseline].answer, side.answer)) is not None
    }


def _words(old: Answer | None, new: Answer | None) -> WordDiff | None:
    """The difference of two answers; None unless both are there."""
    if old is None or new is None or old.outputs is None or new.outputs is None:
        return None
    return word_diff(shown_text(old.outputs), shown_text(new.outputs), IN_TABLE)
