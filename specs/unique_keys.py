"""JSON and YAML with each key once: of two values, the parsers would silently keep the last."""

from collections.abc import Hashable
from typing import Any

import yaml

from evalflows.specs.errors import short


def unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a JSON object, as the `object_pairs_hook` of `json.loads`. Raise ValueError for a key that repeats."""
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for place, name in enumerate(names) if name in names[:place])
        raise ValueError(f"got the key {short(repeated)} twice")
    return made


class UniqueKeyLoader(yaml.SafeLoader):
    """YAML's safe loader. Raise ConstructorError for a key that repeats in a mapping, except through a merge."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    problem = f"got the key {short(key.value)} twice"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)
