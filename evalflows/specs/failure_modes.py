"""Taxonomies: files of failure modes, or of topics, that a team owns and reviews.

A file is edited in place: comments, order, quotes and indentation stay. Not kept are line breaks inside a text that is
not quoted, and blanks at the ends of lines.
"""

import io
import os
import re
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from evalflows.specs.errors import InputError
from evalflows.specs.files import load_spec, load_text, located, make_spec

PREFIX = "mode."
"""What the metrics of modes begin with."""
CLOSED_MODES = "closed_modes"
"""The metric of a watch rule that stands for a rule on each closed mode."""
OTHER = "other"
"""The name of what no mode of a taxonomy covers."""
TAKEN = (OTHER, "reasoning")

Name = Annotated[str, StringConstraints(pattern=r"^\w[\w-]*$", max_length=60)]
Words = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class ModeSpec(BaseModel):
    """A failure mode, or a topic."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name = Field(description="Letters, digits, _ and -; the metric is mode.NAME")
    definition: Words = Field(description="One sentence by which a stranger could tell whether it holds")
    examples: list[Words] = Field(default_factory=list, description="Texts, or ids of runs or traces")
    status: Literal["open", "closed"] = Field("open", description="closed: it should not come back")
    since: str | None = Field(None, description="The day since when it has this status")


class TaxonomySpec(BaseModel):
    """A file of failure modes, of which several may hold; or of topics, of which exactly one does."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["modes", "topic"] = Field("modes", description="Whether several of these may hold, or exactly one")
    modes: list[ModeSpec] = Field(min_length=1, description="The modes, or the topics")

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [mode.name for mode in self.modes]
        for name in names:
            if name in TAKEN:
                raise ValueError(f"modes: got the name {name!r}, wanted one other than {', '.join(TAKEN)}")
            if names.count(name) > 1:
                raise ValueError(f"modes: got {name!r} twice, wanted each name once")
        return self

    @property
    def names(self) -> list[str]:
        return [mode.name for mode in self.modes]

    def mode(self, name: str) -> ModeSpec:
        """Return a mode. Raise InputError for an unknown name."""
        for mode in self.modes:
            if mode.name == name:
                return mode
        raise InputError(f"no failure mode {name!r}, wanted one of {', '.join(self.names)}")

    @property
    def metrics(self) -> list[str]:
        """The metric of each mode, and that of failures that none covers; none for topics, which are one label."""
        return [] if self.kind == "topic" else [f"{PREFIX}{name}" for name in [*self.names, OTHER]]

    @property
    def closed(self) -> list[str]:
        """The metrics of closed modes."""
        return [f"{PREFIX}{mode.name}" for mode in self.modes if mode.status == "closed"]

    @property
    def settings(self) -> dict[str, Any]:
        """What decides whether a mode holds: all but its status, which is no part of an evaluator's version."""
        return {
            "kind": self.kind,
            "modes": [mode.model_dump(include={"name", "definition", "examples"}) for mode in self.modes],
        }


def load_taxonomy(path: str | Path) -> TaxonomySpec:
    """Read a taxonomy (YAML). Raise InputError, in one line, if it is invalid."""
    return load_spec(TaxonomySpec, located(path), [], wanted="modes")


Change = Callable[[Any], None]
"""Changes the content of a taxonomy: a mapping whose `modes` is a list of mappings."""


def edited(text: str, change: Change, where: str) -> str:
    """Return the text of a taxonomy after a change. Raise InputError, beginning with `where`, if it is invalid then."""
    from ruamel.yaml import YAML  # late: only what writes a taxonomy needs it

    yaml = YAML()
    yaml.preserve_quotes, yaml.width = True, 110
    first = re.search(r"^modes:[^\n]*\n(?:\s*#[^\n]*\n)*( *)- ", text, flags=re.MULTILINE)
    offset = len(first[1]) if first else 2
    yaml.indent(mapping=2, sequence=offset + 2, offset=offset)
    content = yaml.load(text) if text.strip() else {"modes": []}
    change(content)
    stream = io.StringIO()
    yaml.dump(content, stream)
    make_spec(TaxonomySpec, load_text(stream.getvalue(), where, wanted="modes"), [], where)
    return stream.getvalue()


def edit(path: Path, change: Change) -> tuple[str, str]:
    """Change a taxonomy's file, or write a new one. Return its text before and after.

    Raise InputError, and leave the file as it is, if the file or the result is invalid or cannot be written.
    """
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        after = edited(before, change, str(path))
        part = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            part.write_text(after, encoding="utf-8")
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be written: {getattr(error, 'strerror', None) or error}") from error
    return before, after


def adding(modes: Sequence[ModeSpec]) -> Change:
    """Return the change that adds modes at the end."""

    def add(content: Any) -> None:
        content["modes"].extend(mode.model_dump(exclude_defaults=True) for mode in modes)

    return add


def with_status(name: str, status: Literal["open", "closed"], since: date) -> Change:
    """Return the change that opens or closes a mode. Applied, it raises InputError for an unknown name."""

    def change(content: Any) -> None:
        mode = next((mode for mode in content["modes"] if mode["name"] == name), None)
        if mode is None:
            known = ", ".join(str(mode["name"]) for mode in content["modes"])
            raise InputError(f"no failure mode {name!r}, wanted one of {known}")
        mode["status"], mode["since"] = status, since

    return change
