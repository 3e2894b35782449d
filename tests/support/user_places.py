"""Error texts without the file and line where a test's own code raised."""

import re


def without_places(error: str | None) -> str:
    return re.sub(r" \([^\s()]+:\d+ in [^()]*\)", "", error or "")
