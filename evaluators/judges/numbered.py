"""Judges that are shown numbered things, and give one verdict for each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evaluators.asking import Asked
from evaluators.judges.listing import Item, why
from evaluators.prompt import prompt_hash
from evaluators.sheet import verdict_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbered:
    """What is numbered, and the names of the list of verdicts and of the verdict in an entry."""

    title: str
    things: str
    entries: str
    verdict: str

    def schema(self, reasoning: bool, count: int | None = None) -> dict[str, Any]:
        """An entry is the number, the reasoning about it if that is wanted, and then the verdict.

        With a count there are just so many, of numbers from 1: whoever checks the answer asks again for another count.
        """
        number: dict[str, Any] = {"type": "integer"}
        entries: dict[str, Any] = {"type": "array"}
        if count is not None:
            number |= {"minimum": 1, "maximum": count}
            entries |= {"minItems": count, "maxItems": count}
        entry = {"number": number} | why(reasoning) | {self.verdict: {"type": "boolean"}}
        return verdict_schema(self.title, {self.entries: entries | {"items": verdict_schema("verdict", entry)}})

    def in_order(self, asked: Asked, count: int) -> list[Item]:
        """The entries by their numbers. Raises ValueError unless there is one for each of 1 to `count`.

        Never padded: a thing without a verdict would count as one with a bad one.
        """
        entries: Sequence[Item] = asked.verdict[self.entries]
        if len(entries) != count:
            raise ValueError(f"{self.title}: got {len(entries)} verdicts, wanted {count}")
        by_number = {int(entry["number"]): entry for entry in entries}
        if by_number.keys() != {*range(1, count + 1)}:
            got = ", ".join(str(entry["number"]) for entry in entries)
            wanted = f"wanted each of 1 to {count} once"
            raise ValueError(f"{self.title}: got verdicts on the {self.things} {got}, {wanted}")
        return [by_number[number] for number in range(1, count + 1)]

    def hash_of(self, prompt: str, reasoning: bool, *said: str) -> str:
        """The hash of what the model was asked with; the count, which may be an example's, is no part of it."""
        return prompt_hash(prompt, *said, self.schema(reasoning))
