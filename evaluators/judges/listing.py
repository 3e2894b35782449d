"""Judges that list items with a verdict each: claims, statements, instructions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalflows.evaluators.asking import JudgeReply
from evalflows.evaluators.score import Score
from evalflows.evaluators.sheet import verdict_schema

_MOST_NAMED = 10

Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Field names of a list of verdicts: the list, the text of an entry, and its verdict."""

    title: str
    entries: str
    text: str
    verdict: str

    def schema(self, reasoning: bool, **more_fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the schema. An entry is the text, the reasoning if requested, then the verdict."""
        entry = {self.text: {"type": "string"}} | reasoning_field(reasoning) | {self.verdict: {"type": "boolean"}}
        item = verdict_schema(self.text, entry)
        return verdict_schema(self.title, {self.entries: {"type": "array", "items": item}, **more_fields})

    def score(self, reply: JudgeReply) -> Score | None:
        """Return the share of entries with a true verdict; the comment names the others. None for an empty list."""
        return self.score_of(reply.verdict[self.entries], reply.prompt_hash)

    def score_of(self, items: Sequence[Item], prompt_hash: str) -> Score | None:
        """Return the score of the given entries, as `score` does."""
        if not items:
            return None
        negative = [str(item[self.text]) for item in items if not item[self.verdict]]
        return Score(
            value=(len(items) - len(negative)) / len(items),
            comment=self._comment(len(items), negative),
            metadata={self.entries: [dict(item) for item in items]},
            prompt_hash=prompt_hash,
        )

    def _comment(self, count: int, negative: Sequence[str]) -> str:
        counts = f"{count - len(negative)} of {count} {self.entries} {self.verdict}"
        more = [f"{len(negative) - _MOST_NAMED} more"] if len(negative) > _MOST_NAMED else []
        named = "; ".join([*negative[:_MOST_NAMED], *more])
        return f"{counts}; not {self.verdict}: {named}" if negative else counts


def reasoning_field(reasoning: bool) -> dict[str, Any]:
    """Return the schema field for the reasoning about one entry; empty without reasoning."""
    return {"reasoning": {"type": "string"}} if reasoning else {}
