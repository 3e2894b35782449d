"""Taxonomies: files of failure modes, or of topics, that a team owns and reviews.

A file is edited in place: comments, order, quotes and indentation stay. Not kept are line breaks inside a text that is
not quoted, and blanks at the ends of lines.
"""

import fcntl
import io
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from evalflows.specs.errors import ChangedError, InputError
from evalflows.specs.files import load_text, located, make_spec, read_text
from evalflows.specs.model import SpecModel

PREFIX = "mode."
"""What the metrics of modes begin with."""
CLOSED_MODES = "closed_modes"
"""The metric of a watch rule that stands for a rule on each closed mode."""
OTHER = "other"
"""The name of what no mode of a taxonomy covers."""
TAKEN = (OTHER, "reasoning")

Kind = Literal["modes", "topic"]

Name = Annotated[str, StringConstraints(pattern=r"^\w[\w-]*$", max_length=60)]
Words = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]

Change = Callable[[Any], None]
"""Changes the content of a taxonomy: a mapping whose `modes` is a list of mappings."""


class ModeSpec(SpecModel):
    """A failure mode, or a topic."""

    name: Name = Field(description="Letters, digits, _ and -; the metric is mode.NAME")
    definition: Words = Field(description="One sentence from which an outsider can tell whether it holds")
    examples: list[Words] = Field(default_factory=list, description="Texts, or ids of runs or traces")
    status: Literal["open", "closed"] = Field("open", description="closed: it should not come back")
    since: date | None = Field(None, description="The first day of this status")


class TaxonomySpec(SpecModel):
    """A file of failure modes, of which several may hold, or of topics, of which exactly one holds."""

    kind: Kind = Field("modes", description="Whether several of these may hold, or exactly one")
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
    def closed(self) -> dict[str, date | None]:
        """Since which day modes are closed, by their metrics; None if the file does not say so."""
        return {f"{PREFIX}{mode.name}": mode.since for mode in self.modes if mode.status == "closed"}

    @property
    def settings(self) -> dict[str, Any]:
        """What decides whether a mode holds: all but its status, which is no part of an evaluator's version."""
        return {
            "kind": self.kind,
            "modes": [mode.model_dump(include={"name", "definition", "examples"}) for mode in self.modes],
        }


def load_taxonomy(path: str | Path) -> TaxonomySpec:
    """Read a taxonomy (YAML). Raise InputError, in one line, if it is invalid."""
    file = located(path)
    return taxonomy_of(read_text(file), str(file))


def taxonomy_of(text: str, where: str) -> TaxonomySpec:
    """Return the taxonomy that a text (YAML) has. Raise InputError, beginning with `where`, if it is invalid."""
    return make_spec(TaxonomySpec, load_text(text, where, wanted="modes"), [], where)


def version_of(text: str) -> str:
    """Return what tells a file's text from others, such as from what it was before."""
    return sha256(text.encode()).hexdigest()


def edited(text: str, change: Change, where: str) -> str:
    """Return the text of a taxonomy after a change.

    Raise InputError, beginning with `where`, if it is invalid before or then.
    """
    from ruamel.yaml import YAML  # late: only what writes a taxonomy needs it
    from ruamel.yaml.error import YAMLError

    if text.strip():
        taxonomy_of(text, where)
    yaml = YAML()
    yaml.preserve_quotes, yaml.width = True, 110
    first = re.search(r"^modes:[^\n]*\n(?:\s*#[^\n]*\n)*( *)- ", text, flags=re.MULTILINE)
    offset = len(first[1]) if first else 2
    yaml.indent(mapping=2, sequence=offset + 2, offset=offset)
    try:
        content = yaml.load(text.replace("\r\n", "\n")) if text.strip() else {"modes": []}
    except YAMLError as error:  # by its rules, which are not all ours
        raise InputError(f"{where}: cannot be edited: {error}") from error
    change(content)
    stream = io.StringIO()
    yaml.dump(content, stream)
    taxonomy_of(stream.getvalue(), where)
    return stream.getvalue()


def edit(path: Path, change: Change, seen: str | None = None) -> tuple[str, str]:
    """Change a taxonomy's file, or write a new one. Return its text before and after.

    A symbolic link stays, and so do the file's permissions. Others who edit it wait. Raise InputError, and leave the
    file as it is, if the file or the result is invalid or cannot be written; ChangedError if its version is not the one
    that was `seen`.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with _alone_in(target.parent):
            before = read_text(path) if target.exists() else ""
            if seen is not None and version_of(before) != seen:
                raise ChangedError(f"{path}: changed since it was shown, so nothing was written")
            after = edited(before, change, str(path))
            try:
                temporary.write_text(after, encoding="utf-8")
                if target.exists():
                    temporary.chmod(stat.S_IMODE(target.stat().st_mode))
                temporary.replace(target)
            finally:
                temporary.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
    return before, after


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, alone among threads and processes; of a file that is replaced, it would be lost."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # network file systems lock no folders
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def adding(modes: Sequence[ModeSpec], kind: Kind = "modes") -> Change:
    """Return the change that adds modes at the end; a new file is of this kind."""

    def add(content: Any) -> None:
        if kind == "topic" and not content["modes"]:
            content["kind"] = content.pop("kind", kind)
            content["modes"] = content.pop("modes")
        content["modes"].extend(mode.model_dump(exclude_defaults=True) for mode in modes)

    return add


def with_status(name: str, status: Literal["open", "closed"], since: date) -> Change:
    """Return the change that opens or closes a mode, or says since when it is so.

    Applied, this and the changes below raise InputError for an unknown name.
    """

    def change(content: Any) -> None:
        mode = content["modes"][_place(content, name)]
        if status != mode.get("status", "open"):
            mode["status"] = status
        mode["since"] = since

    return change


def renamed(name: str, to: str, definition: str) -> Change:
    """Return the change that gives a mode another name, another definition, or both."""

    def change(content: Any) -> None:
        mode = content["modes"][_place(content, name)]
        for field, text in (("name", to), ("definition", definition)):
            if mode.get(field) != text:  # what stays keeps its quotes
                mode[field] = text

    return change


def merged(name: str, into: str) -> Change:
    """Return the change that removes a mode, and gives its examples to another."""

    def change(content: Any) -> None:
        index, other = _place(content, name), content["modes"][_place(content, into)]
        if name == into:
            raise InputError(f"merge: got {name!r} into itself, wanted another mode")
        _add_examples(other, content["modes"].pop(index).get("examples") or [])

    return change


def split(name: str, to: str, definition: str, examples: Sequence[int]) -> Change:
    """Return the change that makes a new mode, after a mode, of some of its examples, given by their places from 0."""

    def change(content: Any) -> None:
        index = _place(content, name)
        mode = content["modes"][index]
        own = mode.get("examples") or []
        if not {*examples} <= {*range(len(own))}:
            raise InputError(
                f"split: got examples {sorted(examples)} of {name}, wanted numbers from 0 to {len(own) - 1}"
            )
        moved = [own[number] for number in sorted({*examples})]
        for number in sorted({*examples}, reverse=True):
            del own[number]  # in place, which keeps the comments of the others
        if not own:
            mode.pop("examples", None)
        content["modes"].insert(index + 1, made := {"name": to, "definition": definition})
        _add_examples(made, moved)

    return change


def _place(content: Any, name: str) -> int:
    names = [str(mode["name"]) for mode in content["modes"]]
    if name not in names:
        raise InputError(f"no failure mode {name!r}, wanted one of {', '.join(names)}")
    return names.index(name)


def _add_examples(mode: Any, examples: Sequence[str]) -> None:
    if new := [example for example in examples if example not in (mode.get("examples") or [])]:
        if mode.get("examples"):
            mode["examples"].extend(new)
        else:
            mode["examples"] = new
