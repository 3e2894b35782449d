"""Lists of items that a judge gives a verdict each."""

from collections.abc import Mapping, Sequence
from typing import Any

from evalflows.evaluators.judging import JudgeReply, prompt_hash
from evalflows.evaluators.scales import verdict_schema
from evalflows.evaluators.score import Score
from evalflows.specs.frozen import dataclass

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbered:
    """The noun for the numbered items, and the field names of the list of verdicts and of the verdict in an entry."""

    title: str
    noun: str
    entries: str
    verdict: str

    def schema(self, reasoning: bool, count: int | None = None) -> dict[str, Any]:
        """Return the schema. An entry is the number, the reasoning if requested, then the verdict.

        With a count, the list has exactly that many entries, numbered from 1; an answer with another count is invalid,
        and the model is asked again.
        """
        number: dict[str, Any] = {"type": "integer"}
        entries: dict[str, Any] = {"type": "array"}
        if count is not None:
            number |= {"minimum": 1, "maximum": count}
            entries |= {"minItems": count, "maxItems": count}
        entry = {"number": number} | reasoning_field(reasoning) | {self.verdict: {"type": "boolean"}}
        return verdict_schema(self.title, {self.entries: entries | {"items": verdict_schema("verdict", entry)}})

    def in_order(self, reply: JudgeReply, count: int) -> list[Item]:
        """Return the entries in number order. Raise ValueError unless there is exactly one for each of 1 to `count`.

        Missing entries are never filled in, since an item without a verdict would count as a negative verdict.
        """
        entries: Sequence[Item] = reply.verdict[self.entries]
        if len(entries) != count:
            raise ValueError(f"{self.title}: got {len(entries)} verdicts, wanted {count}")
        by_number = {int(entry["number"]): entry for entry in entries}
        if by_number.keys() != {*range(1, count + 1)}:
            got = ", ".join(str(entry["number"]) for entry in entries)
            wanted = f"wanted each of 1 to {count} once"
            raise ValueError(f"{self.title}: got verdicts on the {self.noun} {got}, {wanted}")
        return [by_number[number] for number in range(1, count + 1)]

    def hash_of(self, prompt: str, reasoning: bool, *spec_texts: str) -> str:
        """Return the hash of prompt and schema, without the count, which can differ between examples."""
        return prompt_hash(prompt, *spec_texts, self.schema(reasoning))
