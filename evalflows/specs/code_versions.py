"""The parts of the user's own code that a function depends on, each with a hash, found without running anything.

From the function's top-level statement, names are followed to the statements that bind them: constants, helpers,
classes, and what is imported from the user's other modules. A text that names an existing file of prompts, templates or
settings adds that file. Installed packages do not count, and what is only known at run time (environment variables,
services, computed names of files and modules) cannot be seen.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from evalflows.specs.loaded_code import assigned_text, differs_from_file, is_gone_from_file
from evalflows.specs.module_source import (
    Imported,
    ModuleSource,
    Used,
    digest_of,
    is_installed,
    is_interactive,
    module_source,
)

TEMPLATES = {".txt", ".md", ".rst", ".j2", ".jinja", ".jinja2", ".tmpl", ".template", ".mustache", ".hbs", ".prompt"}
FILE_SUFFIXES = TEMPLATES | {".yaml", ".yml", ".toml", ".json", ".html", ".xml"}
"""Suffixes of files that count if the code names them: prompts, templates and settings, not data, databases or logs."""

MAX_FILE_BYTES = 5 << 20


def code_parts(function: Callable[..., Any], plain: Callable[[object], object] = repr) -> dict[str, str]:
    """Return a hash of each part of the user's code that a callable depends on, by name, such as `prompts.SYSTEM`.

    Empty if its source cannot be read. `plain` makes values of notebooks comparable, where names have no statements.
    """
    walk = _Walk(plain)
    walk.add_callable(function)
    return dict(sorted(walk.parts.items()))


def imports_used(function: Callable[..., Any]) -> frozenset[str] | None:
    """Return what a callable's code uses of modules that are not the user's, as dotted names such as `openai.OpenAI`.

    None if its code cannot be read, as for objects of installed packages.
    """
    walk = _Walk(repr)
    walk.add_callable(function)
    return frozenset(walk.imported) if walk.parts else None


def listed(parts: list[str], most: int = 5) -> str:
    """Return parts of code for a message; those of a program or a notebook without `__main__`."""
    names = [part.removeprefix("__main__.") for part in parts]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def changed_since_import(function: Callable[..., Any]) -> list[str]:
    """Return the parts of a callable's code whose files were edited after Python had imported them."""
    walk = _Walk(repr)
    walk.add_callable(function)
    edited = {f"{module.name}.{name}" for module, name, loaded in walk.bound if differs_from_file(module, name, loaded)}
    gone = {f"{module.name}.{each.__qualname__}" for module, each in walk.unbound if is_gone_from_file(module, each)}
    return sorted(edited | gone)


class _Walk:
    def __init__(self, plain: Callable[[object], object]) -> None:
        self.parts: dict[str, str] = {}
        self.bound: list[tuple[ModuleSource, str, object]] = []  # what modules bind: its name, and its value if known
        self.unbound: list[tuple[ModuleSource, FunctionType]] = []  # functions that their modules do not bind
        self.imported: set[str] = set()  # dotted names in modules that are not the user's
        self._plain = plain
        self._seen: set[object] = set()

    def add_callable(self, function: object) -> None:
        while isinstance(function, partial):
            function = function.func
        if inspect.ismethod(function):
            self.add_callable(function.__self__)
            function = function.__func__
        inner = inspect.unwrap(function) if callable(function) else function
        named = inner if inspect.isroutine(inner) or inspect.isclass(inner) else type(inner)
        module, path = getattr(named, "__module__", None) or "", getattr(named, "__qualname__", "")
        source, name = module_source(module), path.partition(".")[0]
        if source is not None and source.binds(name) and "<locals>" not in path:
            self._add(source, name, named if path == name else None)
        elif isinstance(named, FunctionType) and (source is not None or is_interactive(module)):
            self._add_by_value(named, source)

    def _add(self, module: ModuleSource, name: str, loaded: object = None) -> None:
        """Add the statements that bind a name in a module, and all that they use; `loaded` is what it is bound to."""
        if (module.name, name) in self._seen:
            return
        self._seen.add((module.name, name))
        used = module.used_by(name)
        if name not in used.imports:
            assigned = assigned_text(module, name)
            self.parts[f"{module.name}.{name}"] = (
                module.digest(name) if assigned is None else digest_of(assigned.encode())
            )
            self.bound.append((module, name, loaded))
        self._add_used(module, used)

    def _add_used(self, module: ModuleSource, used: Used) -> None:
        for dotted in sorted(used.names):
            head, *rest = dotted.split(".")
            if head in used.imports:
                self._follow(used.imports[head], rest)
            else:
                self._resolve(module, head, rest)
        self._add_files(used.texts, module.path.parent)

    def _resolve(self, module: ModuleSource, name: str, rest: list[str]) -> bool:
        """Add what a name in a module is bound to; return whether the module binds it."""
        if not module.binds(name):
            sources = (module_source(star) for star in module.stars)
            return any(source is not None and self._resolve(source, name, rest) for source in sources)
        imports = module.used_by(name).imports
        if name in imports:
            self._follow(imports[name], rest)
        if name not in imports or len(module.statements[name]) > 1:
            self._add(module, name)
        return True

    def _follow(self, imported: Imported, rest: list[str]) -> None:
        """Add what an import refers to: names of the user's modules, or a whole module if it is used as an object."""
        source = module_source(imported.module)
        if source is None and is_installed(imported.module):
            self.imported.add(".".join([imported.module, *filter(None, [imported.name]), *rest]))
        elif imported.name is not None:
            if source is None or not self._resolve(source, imported.name, rest):
                self._follow_module(f"{imported.module}.{imported.name}", rest)
        else:
            self._follow_module(imported.module, rest)

    def _follow_module(self, name: str, rest: list[str]) -> None:
        source = module_source(name)
        if rest and source is not None and self._resolve(source, rest[0], rest[1:]):
            return
        if rest and module_source(submodule := f"{name}.{rest[0]}") is not None:
            self._follow_module(submodule, rest[1:])
        elif source is not None and name not in self._seen:
            self._seen.add(name)
            for bound in list(source.statements):
                self._add(source, bound)
        elif source is None:
            self.imported.add(".".join([name, *rest]))

    def _add_files(self, texts: Iterable[str], folder: Path) -> None:
        for text in texts:
            if Path(text).suffix in FILE_SUFFIXES and len(text) < 255 and "\n" not in text:
                found = next((path for base in (folder, Path.cwd()) if _is_small_file(path := base / text)), None)
                if found is not None:
                    self.parts[f"file {text}"] = digest_of(found.read_bytes())

    def _add_by_value(self, function: FunctionType, module: ModuleSource | None) -> None:
        """Add a function without a top-level statement, as in a notebook: its globals count with their values."""
        if function in self._seen:
            return
        if module is not None:
            self.unbound.append((module, function))
        self._seen.add(function)
        label = f"{function.__module__}.{function.__qualname__}"
        self.parts[label] = digest_of(repr(self._plain(function.__code__)).encode())
        for cell in function.__closure__ or ():
            with suppress(ValueError):  # not filled yet
                if isinstance(held := cell.cell_contents, FunctionType | type):
                    self.add_callable(held)
        names = _names_of(function.__code__)
        for name in names:
            value = function.__globals__.get(name)
            if isinstance(value, ModuleType):
                self._add_attributes(value.__name__, names)
            elif module is not None and self._resolve(module, name, []):
                continue
            elif isinstance(value, FunctionType | type):
                self.add_callable(value)
            elif value is not None:
                self.imported.update(_package_of(value))
                self.parts[f"{function.__module__}.{name}"] = digest_of(repr(self._plain(value)).encode())

    def _add_attributes(self, module: str, names: list[str]) -> None:
        """Add the attributes of a module that code may use; the whole module if none is known."""
        source = module_source(module)
        if source is None or not [name for name in names if self._resolve(source, name, [])]:
            self._follow_module(module, [])


def _names_of(code: Any) -> list[str]:
    """Return the global names that code uses, also in functions inside it."""
    inner = [constant for constant in code.co_consts if hasattr(constant, "co_names")]
    return sorted({*code.co_names, *(name for one in inner for name in _names_of(one))})


def _package_of(value: object) -> Iterator[str]:
    """Yield the package of an object's type, such as that of a client, unless it is built in."""
    package = (type(value).__module__ or "").partition(".")[0]
    if package not in ("builtins", "__main__") and module_source(type(value).__module__) is None:
        yield package


def _is_small_file(path: Path) -> bool:
    try:
        return path.is_file() and path.stat().st_size <= MAX_FILE_BYTES
    except (OSError, ValueError):
        return False
