"""Request a verdict from a model and parse it."""

import re
from collections.abc import Mapping
from typing import Any

from evalflows.specs.errors import short

WORTH: Mapping[str, float] = {"A": 1, "B": 0, "C": 0.5}
"""The first text's score for each verdict; C means that neither is better."""

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
AS_TAG = (
    "First write, in two or three sentences, how each answer meets the criteria. Then end with a line that holds the "
    "verdict and nothing else: [[A]] or [[B]], whichever answer is better, or [[C]] if neither is."
)

_TAG = re.compile(r"\[\[([^\[\]\n]*)\]\]")
_OPENED = re.compile(r"""["'`\u201c\u2018\u201e\u00ab][*_]*$""")
_CLOSED = re.compile(r"""[*_.,!?]*(?:["`\u201d\u201c\u00bb]|['\u2019](?!\w))""")  # no apostrophe: [[A]]'s


class PairwiseStringResultOutputParser:
    """Parses a verdict from a text."""

    def parse(self, text: str) -> dict[str, Any]:
        """Return the verdict of the last `[[A]]`, `[[B]]` or `[[C]]`, with the whole text as the reasoning.

        A tag next to a quotation mark is ignored as a quotation, unless it is alone on its line. Raises ValueError if
        there is no tag, or the last one is not A, B or C. Quotations without quotation marks are not detected.
        """
        own = [tag for tag in _TAG.finditer(text) if not _is_quoted(tag)]
        verdict = own[-1][1].strip() if own else None
        if verdict is None or verdict not in WORTH:
            raise ValueError(f"llm: got {short(text)}, wanted [[A]], [[B]] or [[C]] at the end of its answer")
        return _result(text, verdict)


def result_of_fields(answer: object) -> dict[str, Any]:
    """Return the result of an answer in the schema's fields. Raises ValueError if it does not match the schema."""
    fields = answer if isinstance(answer, Mapping) else {}
    verdict, reasoning = fields.get("verdict"), fields.get("reasoning")
    if not isinstance(verdict, str) or verdict not in WORTH or not isinstance(reasoning, str):
        raise ValueError(f"llm: got {short(answer)}, wanted a reasoning and a verdict of A, B or C")
    return _result(reasoning, verdict)


def _result(reasoning: str, verdict: str) -> dict[str, Any]:
    return {"reasoning": reasoning, "value": None if verdict == "C" else verdict, "score": WORTH[verdict]}


def _is_quoted(tag: re.Match[str]) -> bool:
    text = tag.string
    before, after = text[: tag.start()].rpartition("\n")[2], text[tag.end() :].partition("\n")[0]
    is_alone = not re.search(r"\w", before + after)
    return not is_alone and bool(_OPENED.search(before) or _CLOSED.match(after))
