"""Judges that give one verdict for each of several numbered items."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evalflows.evaluators.asking import JudgeReply
from evalflows.evaluators.judges.listing import Item, reasoning_field
from evalflows.evaluators.prompt import prompt_hash
from evalflows.evaluators.sheet import verdict_schema


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
