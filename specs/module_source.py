"""The source of a user's module, by the names that its top-level statements bind. Nothing is executed."""

import ast
import hashlib
import sys
import sysconfig
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec, resolve_name
from pathlib import Path

OURS = "evalflows"


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import statement binds a name to: a module, or a name in it."""

    module: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Used:
    """What a piece of source uses: dotted names that it does not bind by an import, its imports, and its texts."""

    names: frozenset[str]
    imports: dict[str, Imported]
    texts: frozenset[str]  # string constants, any of which may name a file


@dataclass(slots=True)
class ModuleSource:
    """A parsed module."""

    name: str
    path: Path
    statements: dict[str, list[ast.stmt]] = field(default_factory=lambda: defaultdict(list))  # by the name they bind
    stars: list[str] = field(default_factory=list)  # modules of `from … import *`
    _used: dict[str, Used] = field(default_factory=dict)

    def binds(self, name: str) -> bool:
        return name in self.statements

    def digest(self, name: str) -> str:
        """Return a hash of the statements that bind a name; comments and layout do not count."""
        return digest_of("\n".join(ast.dump(statement) for statement in self.statements[name]).encode())

    def used_by(self, name: str) -> Used:
        """Return what the statements that bind a name use."""
        if name not in self._used:
            is_package = self.path.name == "__init__.py"
            self._used[name] = _used_by(self.statements[name], self.name, is_package)
        return self._used[name]


def module_source(name: str) -> ModuleSource | None:
    """Return the source of a user's module; None for other people's modules, ours, and those without source."""
    path = _file_of(name)
    if path is None or name.partition(".")[0] == OURS or not is_users(path):
        return None
    try:
        state = path.stat()
        return _parsed(name, path, state.st_mtime_ns, state.st_size)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


def is_interactive(name: str) -> bool:
    """Return whether a module has no file, as in a notebook or at Python's prompt."""
    return getattr(sys.modules.get(name), "__file__", None) is None


def is_installed(name: str) -> bool:
    """Return whether a module is in the standard library or an installed package, or cannot be found."""
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names or top == OURS:
        return True
    file = _file_of(top)
    return (file is None and not _is_namespace(top)) or (file is not None and not is_users(file))


def _is_namespace(name: str) -> bool:
    """Return whether a package of the user has no `__init__.py`."""
    try:
        spec = find_spec(name)
    except (ImportError, AttributeError, ValueError):
        return False
    folders = list(spec.submodule_search_locations or ()) if spec is not None and spec.origin is None else []
    return any(is_users(Path(folder).resolve()) for folder in folders)


def is_users(path: Path) -> bool:
    """Return whether a file is the user's own: neither in the standard library nor an installed package."""
    return not any(path.is_relative_to(folder) for folder in _installed()) and "site-packages" not in path.parts


def _used_by(statements: list[ast.stmt], module: str, is_package: bool) -> Used:
    uses = _Uses(module, is_package)
    for statement in statements:
        uses.visit(statement)
    return Used(frozenset(uses.names), uses.imports, frozenset(uses.texts))


class _Uses(ast.NodeVisitor):
    """Collects what statements use."""

    def __init__(self, module: str, is_package: bool) -> None:
        self._module, self._is_package = module, is_package
        self.names: set[str] = set()
        self.texts: set[str] = set()
        self.imports: dict[str, Imported] = {}

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            bound = alias.asname or alias.name.partition(".")[0]
            self.imports[bound] = Imported(alias.name if alias.asname else bound)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        origin = _origin(node, self._module, self._is_package)
        self.imports |= {alias.asname or alias.name: Imported(origin, alias.name) for alias in node.names}

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if dotted := _dotted(node):
            self.names.add(dotted)
        else:
            self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.names.add(node.id)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self.texts.add(node.value)


def _dotted(node: ast.expr) -> str:
    """Return a chain of attributes of a name, such as `prompts.qa.SYSTEM`; empty for any other expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


@cache
def _parsed(name: str, path: Path, _mtime_ns: int, _size: int) -> ModuleSource:
    source = ModuleSource(name, path)
    is_package = path.name == "__init__.py"
    for statement in ast.parse(path.read_bytes()).body:
        for bound in _bound_by(statement):
            source.statements[bound].append(statement)
        if isinstance(statement, ast.ImportFrom) and any(alias.name == "*" for alias in statement.names):
            source.stars.append(_origin(statement, name, is_package))
    return source


def _bound_by(statement: ast.stmt) -> set[str]:
    """Return the names that a top-level statement binds or changes."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    bound: set[str] = set()
    for node in ast.walk(statement):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                bound.add(node.name)
            case ast.Import() | ast.ImportFrom():
                bound.update(alias.asname or alias.name.partition(".")[0] for alias in node.names)
            case ast.Name(ctx=ast.Store() | ast.Del()):
                bound.add(node.id)
            case ast.Attribute(ctx=ast.Store()) | ast.Subscript(ctx=ast.Store()):  # config.x = 1, table["x"] = 1
                inner: ast.expr = node.value
                while isinstance(inner, ast.Attribute | ast.Subscript):
                    inner = inner.value
                if isinstance(inner, ast.Name):
                    bound.add(inner.id)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):  # names.update(…), names.append(…)
        bound.add(_dotted(statement.value.func).partition(".")[0])
    return bound


def _origin(statement: ast.ImportFrom, module: str, is_package: bool) -> str:
    """Return the absolute name of the module that a `from` statement imports from."""
    if not statement.level:
        return statement.module or ""
    package = module if is_package else module.rpartition(".")[0]
    try:
        return resolve_name("." * statement.level + (statement.module or ""), package)
    except ImportError:
        return statement.module or ""


def _file_of(name: str) -> Path | None:
    """Return the file of a module. An installed package is not imported for it."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if name not in sys.modules:
        top, _, rest = name.partition(".")
        try:
            spec = find_spec(top)
            if rest and spec is not None and (spec.origin is None or is_users(Path(spec.origin).resolve())):
                spec = find_spec(name)
        except (ImportError, AttributeError, ValueError):
            return None
        file = spec.origin if spec is not None and spec.has_location and spec.name == name else None
    return Path(file).resolve() if file and str(file).endswith(".py") else None


@cache
def _installed() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    return tuple({Path(paths[key]).resolve() for key in ("stdlib", "platstdlib", "purelib", "platlib")})


def digest_of(content: bytes) -> str:
    """Return the beginning of the SHA-256 of a part of code, as 16 hex digits."""
    return hashlib.sha256(content).hexdigest()[:16]
