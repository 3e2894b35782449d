"""How an erased text is marked: every reader of the store may come upon one."""

import json
import re

from evalflows.store.json_text import Json

MARKER = re.compile(r"\(erased \d{4}-\d\d-\d\d(?: #[0-9a-f]{12})?\)")
"""What stands in place of an erased text: when it was erased and, of whole values, what tells them apart."""

FIELD = "erased"
"""The only field of an erased JSON value, and the field that says so where others stayed."""

ATTRIBUTE = "evalflows.erased"
"""The attribute of an observation that says on which day it was erased."""


def is_erased(text: Json | None) -> bool:
    """Whether a JSON value was erased."""
    if text is None or f'"{FIELD}":"(erased ' not in text:
        return False
    value = json.loads(text)
    return isinstance(value, dict) and isinstance(value.get(FIELD), str) and bool(MARKER.fullmatch(value[FIELD]))
