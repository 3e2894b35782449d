"""How a verdict is asked for, and what becomes of it."""

import re
from collections.abc import Mapping
from typing import Any

from specs.errors import short

WORTH: Mapping[str, float] = {"A": 1, "B": 0, "C": 0.5}
"""What a verdict is worth to the first text; C means that neither is better."""

SCHEMA: Mapping[str, Any] = {
    "title": "pairwise",
    "type": "object",
    "properties": {"reasoning": {"type": "string"}, "verdict": {"type": "string", "enum": [*WORTH]}},
    "required": ["reasoning", "verdict"],
    "additionalProperties": False,
}
"""The reasoning comes first, so that the verdict follows from it."""

AS_FIELDS = (
    'Give "reasoning" first: in two or three sentences, how each answer meets the criteria. Then give "verdict": "A" '
    'or "B", whichever answer is better, or "C" if neither is.'
)
AS_MARK = (
    "First write, in two or three sentences, how each answer meets the criteria. Then end with a line that holds the "
    "verdict and nothing else: [[A]] or [[B]], whichever answer is better, or [[C]] if neither is."
)

_MARK = re.compile(r"\[\[([^\[\]\n]*)\]\]")
_OPENED = re.compile(r"""["'`\u201c\u2018\u201e\u00ab][*_]*$""")
_CLOSED = re.compile(r"""[*_.,!?]*(?:["`\u201d\u201c\u00bb]|['\u2019](?!\w))""")  # no apostrophe: [[A]]'s


class PairwiseStringResultOutputParser:
    """Reads a verdict off a text."""

    def parse(self, text: str) -> dict[str, Any]:
        """The last `[[A]]`, `[[B]]` or `[[C]]` of a text counts, and the whole text is the reasoning.

        One beside a quotation mark is somebody else's, unless a line holds nothing else. Raises ValueError for a text
        without any, and for one whose last says something else. It cannot see whose words a text repeats without
        quotation marks.
        """
        own = [mark for mark in _MARK.finditer(text) if not _is_quoted(mark)]
        said = own[-1][1].strip() if own else None
        if said is None or said not in WORTH:
            raise ValueError(f"llm: got {short(text)}, wanted [[A]], [[B]] or [[C]] at the end of its answer")
        return _result(text, said)


def of_fields(answer: object) -> dict[str, Any]:
    """The result of an answer of the schema. Raises ValueError for one that is not."""
    fields = answer if isinstance(answer, Mapping) else {}
    verdict, reasoning = fields.get("verdict"), fields.get("reasoning")
    if not isinstance(verdict, str) or verdict not in WORTH or not isinstance(reasoning, str):
        raise ValueError(f"llm: got {short(answer)}, wanted a reasoning and a verdict of A, B or C")
    return _result(reasoning, verdict)


def _result(reasoning: str, verdict: str) -> dict[str, Any]:
    return {"reasoning": reasoning, "value": None if verdict == "C" else verdict, "score": WORTH[verdict]}


def _is_quoted(mark: re.Match[str]) -> bool:
    text = mark.string
    before, after = text[: mark.start()].rpartition("\n")[2], text[mark.end() :].partition("\n")[0]
    is_alone = not re.search(r"\w", before + after)
    return not is_alone and bool(_OPENED.search(before) or _CLOSED.match(after))
