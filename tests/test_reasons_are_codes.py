"""No code, and no query, looks into a text that is written for people: codes and flags stand beside each.

Read off the source: what compares a message, or searches it. A text of somebody else, who gives nothing but the text,
may be looked into; each such place stands in ALLOWED, with why.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from evalflows.store.records import DecisionConclusion

ROOT = Path(__file__).parent.parent
PACKAGES = (
    *("specs", "stats", "store", "evaluators", "targets", "llm"),
    *("execution", "analysis", "reports", "tasks", "flows", "compat", "cli", "pytest_plugin"),
)

FIELDS = {
    *("reason", "message", "text", "error", "summary", "because", "why", "comment", "warning", "method", "doc"),
    *("sentence", "sentences", "stderr", "stdout"),
}
"""Attributes and keys that hold a text, and columns that do."""

VARIABLES = {"reason", "message", "error", "summary", "why", "comment", "warning", "sentence", "sentences"}
"""Local names that do. `text` and `said` are what a user or a model wrote, nearly everywhere."""

PASSING = {"strip", "rstrip", "lstrip", "lower", "upper", "casefold", "replace"}
SEARCHING = {
    *("startswith", "endswith", "removeprefix", "removesuffix", "find", "rfind", "index", "count", "split"),
    *("partition", "rpartition", "search", "match", "fullmatch", "findall", "finditer"),
}
CODES = {*get_args(DecisionConclusion)}
"""Texts with a space in them that are codes."""

ALLOWED = {
    "reports/experiments_report.py: reason in ('refused'": "limits.reason is a LimitChange, a code",
    "cli/described.py: self.doc.partition(": "the first sentence of a docstring is shown",
    "cli/described.py: re.split('(?<=[.!?])": "the same",
    "compat/langsmith/run_methods.py: error in (None, run.error is not None)": "LangSmith's filter, yes or no",
    "evaluators/judges/json_fields.py: error.message.startswith(": "jsonschema names the missing field nowhere else",
    "flows/deployments.py: re.split(' - (?:Response|For more": "Prefect's HTTP errors, shortened to be shown",
    "llm/faults.py: _TOO_LONG.search(": "some providers have no code for a prompt that is too long",
    "llm/post.py: response.text.removeprefix(": "a byte-order mark before a provider's JSON",
    "specs/errors.py: first['msg'].removeprefix('Value error, ')": "pydantic's prefix, taken off to be shown",
    "stats/rater_agreement/judge_error.py: estimate.method.partition(';')": "half of a name, to be shown",
    "reports/comparison.py: regexp_replace(error": "errors that are alike but for names are shown once",
    "execution/preflight/connections.py: str(error).removeprefix(": "the line begins with the connection's name",
    'store/erased.py: f\'"{FIELD}":"(erased \' not in text': "the marker of an erased value in stored JSON, no message",
    "store/erasing/subjects.py: query.lstrip().startswith('with ')": "a query of ours",
    "store/object_store.py: str(error).partition(": "obstore's errors, shortened to be shown",
    "execution/preflight/connections.py: 'max_tokens' not in str(error)": "a provider names the parameter nowhere else",
}
"""The beginning of what stands in a file, and why it may."""


def is_text(node: ast.AST) -> bool:
    """Whether an expression is a message, by its name."""
    match node:
        case ast.Attribute():
            return node.attr in FIELDS
        case ast.Name():
            return node.id in VARIABLES
        case ast.Subscript(slice=ast.Constant(value=str(key))):
            return key in {*FIELDS, "msg"}
        case ast.BoolOp():
            return any(map(is_text, node.values))
        case ast.Call(func=ast.Name(id="str"), args=[ast.Name(id=name)]):
            return name in {*VARIABLES, "exception", "exc"}
        case ast.Call(func=ast.Name(id="str"), args=[argument]):
            return is_text(argument)
        case ast.Call(func=ast.Attribute(attr=attr, value=value)):
            return attr in PASSING and is_text(value)
    return False


def is_sentence(node: ast.AST) -> bool:
    """Whether an expression is a text of several words, or the beginning of one."""
    match node:
        case ast.Constant(value=str(value)):
            return value not in CODES and re.search(r"[a-z]{2,} +\w|\w +[a-z]{2,}|[a-z]:? $", value) is not None
        case ast.JoinedStr():
            return any(map(is_sentence, node.values))
    return False


def holds_words(node: ast.AST) -> bool:
    """Whether a text other than the empty one, or a constant's name, is in an expression."""
    for one in ast.walk(node):
        match one:
            case ast.Constant(value=str(value)) if value:
                return True
            case ast.Name(id=name) if name.isupper():
                return True
    return False


def is_compared(text: ast.AST, other: ast.AST) -> bool:
    """Whether a message is held against words. The name of a method as a whole is a code."""
    is_name = isinstance(text, ast.Attribute) and text.attr == "method"
    return is_text(text) and not is_name and holds_words(other)


def compares_texts(node: ast.Compare) -> bool:
    sides = [node.left, *node.comparators]
    for operator, left, right in zip(node.ops, sides, sides[1:], strict=False):
        match operator:
            case ast.Eq() | ast.NotEq():
                told = is_compared(left, right) or is_compared(right, left)
            case ast.In() | ast.NotIn():
                told = is_text(right) or is_text(left)
            case _:
                continue
        if told or is_sentence(left) or is_sentence(right):
            return True
    return False


def searches_a_text(node: ast.Call) -> bool:
    """A call that looks for something in a message, or for words of a message in anything."""
    match node:
        case ast.Call(func=ast.Attribute(attr=attr, value=value)) if attr in SEARCHING and node.args:
            by_words = attr in {"startswith", "endswith", "removeprefix", "removesuffix"}
            within = any(is_text(part) for one in node.args for part in ast.walk(one))
            return is_text(value) or within or (by_words and any(map(is_sentence, node.args)))
    return False


def matches_a_text(node: ast.Match) -> bool:
    return is_text(node.subject) or any(
        is_sentence(pattern.value) for pattern in ast.walk(node) if isinstance(pattern, ast.MatchValue)
    )


def found_in_code(source: str) -> Iterator[str]:
    """Every expression that compares or searches a message."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Compare() if compares_texts(node):
                yield ast.unparse(node)
            case ast.Call() if searches_a_text(node):
                yield ast.unparse(node)
            case ast.Match() if matches_a_text(node):
                yield f"match {ast.unparse(node.subject)}"
            case ast.Constant(value=str(value)) if re.search(r"\b(select|where|case when|filter \()", value):
                yield from found_in_sql(value)


_COLUMN = r"(?:\w+\.)?\b(?:" + "|".join(sorted(FIELDS)) + r")\b(?:::\w+)?"
_CLOSED = r"(?:\s*(?:,\s*''\s*)?\))*\s*(?:not\s+)?"
_IN_SQL = re.compile(
    rf"""{_COLUMN}{_CLOSED}(?:i?like\b|similar\s+to|glob\b|~)[^\n]*
      |(?!\w*\.?method\b){_COLUMN}{_CLOSED}(?:=|<>|!=|\bin\s*\()\s*'[^'][^\n]*
      |\b(?:starts_with|ends_with|prefix|suffix|contains|instr|strpos|position|regexp_\w+|split_part|substr\w*|left|right)
       \s*\(\s*(?:\w+\(\s*)*{_COLUMN}[^\n]*
      |(?:\blike|=|<>|!=|\bfrom)\s*'[^'\n]*[a-z]{{3,}}\ [a-z]{{2,}}[^'\n]*'""",
    re.IGNORECASE | re.VERBOSE,
)


def found_in_sql(text: str) -> Iterator[str]:
    """Every place of a query that compares or searches a column of messages, or compares anything with a sentence."""
    text = re.sub(r"--.*", "", text)
    yield from (" ".join(one.group().split()) for one in _IN_SQL.finditer(text))


def sources() -> list[Path]:
    return [path for package in PACKAGES for kind in ("*.py", "*.sql") for path in sorted((ROOT / package).rglob(kind))]


def found() -> list[str]:
    """Every such place, as `file: what stands there`."""
    return [
        f"{path.relative_to(ROOT)}: {one}"
        for path in sources()
        for one in (found_in_sql if path.suffix == ".sql" else found_in_code)(path.read_text(encoding="utf-8"))
    ]


@pytest.mark.slow
def test_nothing_looks_into_a_text_that_is_written_for_people() -> None:
    wrong = [one for one in found() if not any(one.startswith(allowed) for allowed in ALLOWED)]
    assert not wrong, "compare a code (evalflows.store.records.ReasonCode), or a flag, instead:\n" + "\n".join(wrong)


@pytest.mark.slow
def test_what_is_allowed_is_still_there() -> None:
    places = found()
    assert [allowed for allowed in ALLOWED if not any(one.startswith(allowed) for one in places)] == []


def test_the_walk_sees_code_and_queries() -> None:
    assert {path.suffix for path in sources()} == {".py", ".sql"}
    assert {path.relative_to(ROOT).parts[0] for path in sources()} == {*PACKAGES}


@pytest.mark.parametrize(
    "code",
    [
        'is_open = (result.reason or "").startswith("the difference may be none")',
        'x = "planted answers" in (self.reason or "")',
        'one.message.startswith("not known")',
        "one.reason.startswith(MAY_BE_NONE)",
        'of[POSITION].message == "not identifiable"',
        "of[POSITION].message == ONE_ORDER",
        'any(rule.startswith("guard ") for rule in broken)',
        '(score.comment or "").startswith("gate: ")',
        'found.method.startswith("no interval")',
        'rule["text"].lower().endswith("is not")',
        "any(message in sentence for sentence in said)",
        're.search("may be", str(error))',
        'PATTERN.search(" ".join(self.doc.split()))',
        'why.removeprefix("refused: ")',
        'anything == "the difference may be none"',
        'anything.startswith("no interval")',
        'anything.startswith(f"gate {name} is closed")',
        "match one.reason:\n    case 'too few':\n        pass",
        "match anything:\n    case 'too few pairs':\n        pass",
        "query = \"select 1 from checks where message like 'not known%'\"",
        'query = "select 1 from checks where contains(message, ?)"',
    ],
)
def test_a_look_into_a_message_is_found(code: str) -> None:
    assert list(found_in_code(code))


@pytest.mark.parametrize(
    "query",
    [
        "select v.method like 'length-controlled%' as length_controlled from verdicts v",
        "select count(*) filter (reason like 'refused%') from limits",
        "select * from checks where starts_with(message, 'not known')",
        "select * from verdicts where v.reason = 'nothing'",
        "select * from verdicts where coalesce(reason, '') like '%none%'",
        "select * from verdicts where lower(reason) in ('nothing')",
        "select * from outputs where regexp_matches(lower(error), 'down')",
        "select * from comparisons where decided_by is distinct from 'failed output'",
    ],
)
def test_a_look_into_a_column_of_messages_is_found(query: str) -> None:
    assert list(found_in_sql(query))


@pytest.mark.parametrize(
    "code",
    [
        'result.reason_code == "no_significant_difference"',
        "reason is None",
        'said.conclusion == "not_enough_evidence"',
        'decision.conclusion == "NOT ENOUGH EVIDENCE"',
        'name.startswith("snap-")',
        '" ".join(str(error).split())',
        'raise InputError(f"{name}: the difference may be none")',
        "query = \"select reason from verdicts where reason_code = 'too_few' and reason is not null\"",
    ],
)
def test_codes_and_flags_may_be_compared_and_texts_made(code: str) -> None:
    assert list(found_in_code(code)) == []
