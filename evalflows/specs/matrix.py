"""The matrix of an experiment's spec: a target for each combination of the values of some of its fields."""

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from difflib import get_close_matches
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from evalflows.specs.errors import first_problem, names_to_choose, short
from evalflows.specs.frozen import dataclass
from evalflows.specs.model import SpecModel
from evalflows.specs.running import ONE_OR_MORE
from evalflows.specs.target import TargetSpec

MOST_CELLS, MOST_COMBINATIONS = 60, 100_000
"""Cells of a matrix unless it allows more, and combinations before some are excluded."""

MOST_LETTERS = 40
"""Letters of a level's name that is made from its value."""

PROMPT = "prompt"
"""A factor that is short for the message of a chat target that it does not have yet."""

_MESSAGES = ("system", "user", "messages", PROMPT)
_FILE = re.compile(r"\S+\.(md|txt|ya?ml|json|jinja2?|j2|prompt)")
_KINDS: Mapping[str, type[BaseModel]] = {
    get_args(kind.model_fields["kind"].annotation)[0]: kind for kind in get_args(get_args(TargetSpec)[0])
}
_NO_FACTORS = {"kind", "name", "factors"}


def _as_levels(given: object) -> object:
    return given if isinstance(given, list | dict) else [given]


Levels = Annotated[list[Any] | dict[Any, Any], BeforeValidator(_as_levels)]


class MatrixSpec(SpecModel, extra="allow"):
    """Factors, each a field of the target with its levels, and the combinations to leave out."""

    __pydantic_extra__: dict[str, Levels]

    name: str | None = Field(
        None,
        description="The targets' names, such as {prompt}-{model}; default: the levels of all factors",
        min_length=1,
    )
    exclude: Annotated[list[dict[str, Any]], ONE_OR_MORE] = Field(
        default_factory=list, description="Combinations to leave out: factors, each with one level or several"
    )
    cells: int = Field(MOST_CELLS, ge=1, description="Maximum number of targets")


@dataclass(frozen=True, slots=True)
class _Level:
    label: str
    given: Any
    fields: Mapping[str, Any]  # by their paths in the target

    def is_meant_by(self, wanted: Any) -> bool:
        values = wanted if isinstance(wanted, list) else [wanted]
        return any(value == self.given or _label(_as_file(value)) == self.label for value in values)


_Cell = Mapping[str, _Level]


def expanded(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an experiment's spec with a target per cell of its matrix, instead of the matrix and of the
    only target, whose other fields all of them have.

    Raise ValueError, in one line, for a matrix that makes no targets, or too many.
    """
    rest, targets = {key: value for key, value in spec.items() if key != "matrix"}, spec.get("targets")
    try:
        matrix = MatrixSpec.model_validate(spec["matrix"])
    except ValidationError as error:
        raise ValueError(first_problem(error, "matrix")) from None
    if not isinstance(targets, list | tuple) or len(targets) != 1:
        got = f"{len(targets)} targets" if isinstance(targets, list | tuple) else "no list of targets"
        raise ValueError(f"matrix: got {got}, wanted one target, whose fields it varies")
    base = targets[0].model_dump(exclude_unset=True) if isinstance(targets[0], BaseModel) else targets[0]
    if not isinstance(base, dict) or base.get("kind") not in _KINDS:
        return rest  # the spec's own checks say what is wrong
    factors = {name: _levels(name, given, base) for name, given in (matrix.__pydantic_extra__ or {}).items()}
    if not factors:
        raise ValueError("matrix: got no factor, wanted fields of the target with values, such as model: [x, y]")
    _check_apart(factors)
    cells = _cells(factors, matrix)
    return rest | {"targets": [_target(base, name, cell) for name, cell in _named(cells, factors, matrix.name).items()]}


def _check_apart(factors: Mapping[str, Sequence[_Level]]) -> None:
    """Raise ValueError if two factors set one field: the second would hide the first."""
    setting: dict[str, str] = {}
    for factor, levels in factors.items():
        for path in {path for level in levels for path in level.fields}:
            if (other := setting.setdefault(path, factor)) != factor:
                raise ValueError(f"matrix: {factor}: sets {path!r}, which {other!r} sets too, wanted one of them")


def _levels(factor: str, given: Any, base: Mapping[str, Any]) -> list[_Level]:
    where, path = f"matrix: {factor}", _path(factor, base)
    if not given:
        raise ValueError(f"{where}: got no level, wanted a list of levels, or levels by their names")
    values = [*(given.values() if isinstance(given, dict) else given)]
    if path is None and (meant := get_close_matches(factor, MatrixSpec.model_fields, n=1)):
        raise ValueError(f"{where}: no field of a {base['kind']} target, wanted {meant[0]}?")
    if path is None and not all(isinstance(value, dict) for value in values):
        wanted = names_to_choose(factor, _fields(base))
        raise ValueError(f"{where}: no field of a {base['kind']} target, wanted {wanted}; or levels with fields of it")
    parts = [{factor: value} if path is not None else value for value in values]
    labels = [*map(str, given)] if isinstance(given, dict) else _labels(where, parts)
    if repeated := next((label for label in labels if labels.count(label) > 1), None):
        raise ValueError(f"{where}: two levels are called {repeated!r}, wanted names of their own: {{NAME: level}}")
    return [
        _Level(label, value, {_known_path(where, name, base): _as_file(field, name) for name, field in fields.items()})
        for label, value, fields in zip(labels, values, parts, strict=True)
    ]


def _known_path(where: str, field: str, base: Mapping[str, Any]) -> str:
    if (path := _path(field, base)) is None:
        raise ValueError(
            f"{where}: {field!r} is not a field of a {base['kind']} target, "
            f"wanted {names_to_choose(field, _fields(base))}"
        )
    return path


def _path(field: str, base: Mapping[str, Any]) -> str | None:
    """Return where a field stands in the target, or in the one that a conversation asks; None if nowhere."""
    inner = base.get("target")
    if field == PROMPT and base["kind"] == "chat":
        return "system" if base.get("system") is None else "user"
    if field.partition(".")[0] in _own_fields(base):
        return field
    if isinstance(inner, dict) and inner.get("kind") in _KINDS and (path := _path(field, inner)):
        return f"target.{path}"
    return None


def _own_fields(base: Mapping[str, Any]) -> set[str]:
    return {*_KINDS[base["kind"]].model_fields} - _NO_FACTORS


def _fields(base: Mapping[str, Any]) -> list[str]:
    is_chat = base["kind"] == "chat"
    return [
        *([PROMPT] if is_chat else []),
        *(name for name in _KINDS[base["kind"]].model_fields if name in _own_fields(base)),
    ]


def _as_file(value: Any, field: str = PROMPT) -> Any:
    """Return a message that is the path of a file as such."""
    is_file = field.rpartition(".")[2] in _MESSAGES and isinstance(value, str) and _FILE.fullmatch(value)
    return {"file": value} if is_file else value


def _labels(where: str, levels: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return names of levels by their values: of files without folders, if these are not what tells them apart."""
    for is_whole in (False, True):
        labels = []
        for fields in levels:
            parts = [_label(_as_file(value, name), is_whole=is_whole) for name, value in fields.items()]
            if not parts or None in parts:
                raise ValueError(f"{where}: got {short([*fields.values()])}, wanted levels by names: {{NAME: level}}")
            labels.append("-".join(map(str, parts)))
        if len({*labels}) == len(labels):
            break
    return labels


def _label(value: Any, *, is_whole: bool = False) -> str | None:
    match value:
        case {"file": str(path), **others} if not others:
            return str(Path(path).with_suffix("")) if is_whole else Path(path).stem
        case None | bool():
            return str(value).lower()
        case int() | float():
            return f"{value:g}" if isinstance(value, float) else str(value)
        case str():
            text = " ".join(value.split())
            return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 1]}…"
    return None


def _cells(factors: Mapping[str, Sequence[_Level]], matrix: MatrixSpec) -> list[_Cell]:
    for excluded in matrix.exclude:
        if unknown := next((name for name in excluded if name not in factors), None):
            raise ValueError(f"matrix: exclude: got {unknown!r}, wanted {names_to_choose(unknown, factors)}")
    count = prod(map(len, factors.values()))
    cells = list[_Cell]()
    if count <= MOST_COMBINATIONS:
        every: list[_Cell] = [dict(zip(factors, levels, strict=True)) for levels in product(*factors.values())]
        for excluded in matrix.exclude:
            if not any(_is_in(cell, excluded) for cell in every):
                raise ValueError(f"matrix: exclude: {_not_met(factors, excluded)}")
        cells = [cell for cell in every if not any(_is_in(cell, excluded) for excluded in matrix.exclude)]
        count = len(cells)
    if not count:
        raise ValueError("matrix: exclude: got every cell, wanted some left")
    if count > matrix.cells or not cells:
        raise ValueError(f"matrix: got {count:,} cells, wanted at most {matrix.cells}; cells: {count} allows them")
    return cells


def _not_met(factors: Mapping[str, Sequence[_Level]], excluded: Mapping[str, Any]) -> str:
    """Say why an exclusion meets no cell."""
    for factor, wanted in excluded.items():
        for value in wanted if isinstance(wanted, list) else [wanted]:
            if not any(level.is_meant_by(value) for level in factors[factor]):
                known = names_to_choose(str(value), [level.label for level in factors[factor]])
                return f"{factor}: got {short(value)}, wanted {known}"
    return f"{', '.join(excluded)}: got levels that no cell has together"


def _is_in(cell: _Cell, excluded: Mapping[str, Any]) -> bool:
    return all(cell[factor].is_meant_by(wanted) for factor, wanted in excluded.items())


def _named(cells: Sequence[_Cell], factors: Mapping[str, Sequence[_Level]], template: str | None) -> dict[str, _Cell]:
    """Return the cells by their names. Raise ValueError if two have the same."""
    varied = [factor for factor, levels in factors.items() if len(levels) > 1] or [*factors]
    every = "-".join(f"{{{factor}}}" for factor in varied)
    named: dict[str, _Cell] = {}
    for cell in cells:
        name = "".join(_filled(template or every, cell))
        if name in named:
            raise ValueError(
                f"matrix: name: got {template!r}, which names two targets {name!r}, wanted a name such as {every}"
            )
        named[name] = cell
    return named


def _filled(template: str, cell: _Cell) -> Iterator[str]:
    for number, part in enumerate(re.split(r"\{([^{}]*)\}", template)):
        if number % 2 and part not in cell:
            raise ValueError(f"matrix: name: got {{{part}}}, wanted {names_to_choose(part, cell)}")
        yield cell[part].label if number % 2 else part


def _target(base: Mapping[str, Any], name: str, cell: _Cell) -> dict[str, Any]:
    target: dict[str, Any] = {**base, "name": name, "factors": {factor: level.label for factor, level in cell.items()}}
    for factor, level in cell.items():
        for path, value in level.fields.items():
            node, *keys = target, *path.split(".")
            for key in keys[:-1]:
                node[key] = {} if node.get(key) is None else copy(node[key])
                node = node[key]
                if not isinstance(node, dict):
                    raise ValueError(f"matrix: {factor}: got {short(node)} at {key}, wanted a mapping, or no value")
            node[keys[-1]] = value
    return target
