"""YAML as spec files have it: YAML 1.2's rules of what is text, and limits of what a text may become."""

import re
from collections.abc import Hashable
from typing import Any

import yaml

from evalflows.specs.errors import short

_SCALARS = (
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("int", r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F]+|0o[0-7]+|0b[01]+)$", "-+0123456789"),
    (
        "float",
        r"(?:[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+][0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
        "-+0123456789.",
    ),
)
"""What is not text: the kind, its pattern, and its first characters."""

MAX_CHARACTERS, MAX_VALUES = 2_000_000, 100_000
"""Most characters of a text in YAML, and most values, with those that aliases and merges repeat."""


class TooLargeError(yaml.YAMLError):
    """A text in YAML with more than anybody writes, which would take minutes or all memory."""


def yaml_problem(error: Exception) -> str:
    """Return why a text is not YAML, on one line, with the place in it: the parser names it after the text."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem and (mark := error.problem_mark):
        return f"line {mark.line + 1}, column {mark.column + 1}: {' '.join(error.problem.split())}"
    return " ".join(str(error).split())


class LimitedLoader(yaml.SafeLoader):
    """YAML's safe loader. Raise TooLargeError before a text is parsed, or before values are made of it."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_CHARACTERS:
            raise TooLargeError(f"got {len(text):,} characters, wanted at most {MAX_CHARACTERS:,}")
        super().__init__(text)
        self._n_values = 0
        self._sizes: dict[str, int] = {}  # the values of each anchor

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        before, anchor = self._n_values, self.peek_event().anchor  # type: ignore[no-untyped-call]
        is_alias = self.check_event(yaml.AliasEvent) and anchor in self.anchors
        self._n_values += self._sizes.get(anchor, MAX_VALUES) if is_alias else 1  # an anchor without a size is open
        if self._n_values > MAX_VALUES:
            raise TooLargeError(f"got more than {MAX_VALUES:,} values, or an alias that contains itself")
        node = super().compose_node(parent, index)
        self._sizes[anchor] = self._n_values - before
        return node


class SpecLoader(LimitedLoader):
    """The limited loader, with YAML 1.2's rules of what is text: `no`, `on`, `12:30`, `010` and dates are what stands
    there. Raise ConstructorError for a key that repeats in a mapping, except through a merge."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    problem = f"got the key {short(key.value)} twice"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _tag(kind: str) -> str:
    return f"tag:yaml.org,2002:{kind}"


SpecLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag in (_tag("null"), _tag("merge"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _kind, _pattern, _first in _SCALARS:
    SpecLoader.add_implicit_resolver(_tag(_kind), re.compile(_pattern), list(_first))
