"""Quote text for SQL and for a shell."""

import re


def sql_text(value: str) -> str:
    """Quote a text for SQL."""
    return "'" + value.replace("'", "''") + "'"


def shell_text(text: str) -> str:
    """Quote a text for a shell, in double quotes, so that SQL's single quotes stay readable."""
    return '"' + re.sub(r'[\\"$`]', r"\\\g<0>", text) + '"'
