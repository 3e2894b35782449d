"""The parts of the user's own code that a function depends on, each with a hash, found without running anything;
whether they were edited since; and where user code raised."""

# From the function's top-level statement, names are followed to the statements that bind them: constants, helpers,
# classes, and what is imported from the user's other modules. A text that names an existing file of prompts, templates
# or settings adds that file. Installed packages do not count, and what is only known at run time (environment
# variables, services, computed names of files and modules) cannot be seen.
#
# The version of a function follows its file. If the file was edited but not reloaded, Python still runs the code that
# it imported, and the version would be that of code that does not run.

import ast
import hashlib
import inspect
import linecache
import os
import re
import sys
import sysconfig
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import field
from functools import cache, lru_cache, partial
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec, resolve_name
from inspect import unwrap
from pathlib import Path
from traceback import walk_tb
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from evalflows.specs.errors import CallError, InputError, describe
from evalflows.specs.frozen import dataclass

OURS = "evalflows"

TEMPLATES = {".txt", ".md", ".rst", ".j2", ".jinja", ".jinja2", ".tmpl", ".template", ".mustache", ".hbs", ".prompt"}
FILE_SUFFIXES = TEMPLATES | {".yaml", ".yml", ".toml", ".json", ".html", ".xml"}
"""Suffixes of files that count if the code names them: prompts, templates and settings, not data, databases or logs."""

MAX_FILE_BYTES = 5 << 20

DYNAMIC = frozenset({"__import__", "eval", "exec"})
"""Built-in functions that use what their text says."""

PLACES = 3
"""Frames of each exception that a one-line text names: the innermost ones."""

FRAMES = 5
"""Frames of each exception in a trace: the outermost one, and the innermost ones."""

LINKED = 4
"""Exceptions of a chain that are described: the last ones raised, and the root cause."""

MEMBERS = 3
"""Exceptions of a group that are described."""

LINE_CHARS = 120

_SECRET = re.compile(r"""(?<=["'\s])(?=[\w+=-]*\d)(?=[\w+=-]*[A-Za-z])[\w+=-]{20,}(?=["'])""")
"""The end of a text in source code that looks like a key or token."""


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
        return digest_of("\n".join(map(_dumped, self.statements[name])).encode())

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
    """Return whether a package of the user has no `evalflows/specs/__init__.py`."""
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


def differs_from_file(source: ModuleSource, name: str, loaded: object = None) -> bool:
    """Return whether a function or a text constant of an imported module is another one than in its file by now.

    `loaded` is the function, if it may be an older one than that of the module. False for everything else, for values
    that the program assigned itself, and for modules that something rewrites as they are imported, as pytest does.
    """
    match _imported(source, name):
        case ast.FunctionDef() | ast.AsyncFunctionDef() as statement:
            loaded = loaded or getattr(sys.modules[source.name], name, None)
            return _is_other_function(unwrap(loaded) if callable(loaded) else None, statement, source)
    text = _other_text(source, name)
    return text is not None and not _is_file_as_imported(source)


def assigned_text(source: ModuleSource, name: str) -> str | None:
    """Return the value of a text constant that the program assigned after the import; None if it did not."""
    text = _other_text(source, name)
    return text if text is not None and _is_file_as_imported(source) else None


def is_gone_from_file(source: ModuleSource, function: FunctionType) -> bool:
    """Return whether a top-level function of an imported module is not in the module's file by now."""
    module, name = sys.modules.get(source.name), function.__qualname__
    return (
        type(getattr(module, "__loader__", None)) is SourceFileLoader
        and name.isidentifier()
        and not source.binds(name)
        and Path(function.__code__.co_filename) == Path(getattr(module, "__file__", None) or "")
    )


def _imported(source: ModuleSource, name: str) -> ast.stmt | None:
    """Return the only statement that binds a name in a plainly imported module."""
    module, statements = sys.modules.get(source.name), source.statements[name]
    is_plain = type(getattr(module, "__loader__", None)) is SourceFileLoader
    return statements[0] if is_plain and len(statements) == 1 else None


def _other_text(source: ModuleSource, name: str) -> str | None:
    """Return the text that a name is bound to, if its file binds it to another one."""
    match _imported(source, name):
        case ast.Assign(value=ast.Constant(value=str(text))) | ast.AnnAssign(value=ast.Constant(value=str(text))):
            loaded = getattr(sys.modules[source.name], name, None)
            return loaded if isinstance(loaded, str) and loaded != text else None
    return None


def _dumped(statement: ast.stmt) -> str:
    """Return a statement as text, the same on every Python: newer ones leave out what is empty, and know parameters of
    types."""
    how: dict[str, Any] = {"show_empty": True} if sys.version_info >= (3, 13) else {}
    return ast.dump(statement, **how).replace(", type_params=[]", "")


def _is_file_as_imported(source: ModuleSource) -> bool:
    """Return whether a module's file is the one that Python compiled, by the time and size kept with the bytecode.

    Where no bytecode is kept, the file is if it is older than this process.
    """
    try:
        state, bytecode = source.path.stat(), Path(sys.modules[source.name].__cached__ or "")
        if not bytecode.exists():
            return state.st_mtime < _process_began()
        header = bytecode.read_bytes()[8:16]
    except (AttributeError, KeyError, OSError):
        return False
    modified, size = (int.from_bytes(header[start : start + 4], "little") for start in (0, 4))
    return (modified, size) == (int(state.st_mtime) & 0xFFFFFFFF, state.st_size & 0xFFFFFFFF)


@cache
def _process_began() -> float:
    """Return when this process began, in seconds since 1970; 0 where the system does not say so in a file."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        since_boot = float(Path("/proc/uptime").read_text().split()[0])
    except OSError:
        return 0.0
    return time.time() - since_boot + ticks / os.sysconf("SC_CLK_TCK")


def _is_other_function(loaded: object, statement: ast.FunctionDef | ast.AsyncFunctionDef, source: ModuleSource) -> bool:
    is_the_same_name = isinstance(loaded, FunctionType) and loaded.__qualname__ == statement.name
    if not isinstance(loaded, FunctionType) or not is_the_same_name or loaded.__module__ != source.name:
        return False  # replaced by a decorator or a test
    in_file = _functions_of(source.path, source.path.stat().st_mtime_ns).get(statement.name)
    return in_file is not None and _plain(in_file) != _plain(loaded.__code__)


@lru_cache(maxsize=64)
def _functions_of(path: Path, _mtime_ns: int) -> dict[str, CodeType]:
    """Return the code of a file's top-level functions, compiled with all of it: that depends on the file's imports."""
    whole = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    return {constant.co_name: constant for constant in whole.co_consts if isinstance(constant, CodeType)}


def _plain(code: CodeType) -> tuple[object, ...]:
    """Return what code does, without the lines on which it stands."""
    constants = tuple(_plain(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts)
    return code.co_code, code.co_names, code.co_varnames, constants


def code_parts(function: Callable[..., Any], plain: Callable[[object], object] = repr) -> dict[str, str]:
    """Return a hash of each part of the user's code that a callable depends on, by name, such as `prompts.SYSTEM`.

    Empty if its source cannot be read. `plain` makes values of notebooks comparable, where names have no statements.
    """
    return dict(sorted(_Walk(function, plain).parts.items()))


def imports_used(function: Callable[..., Any]) -> frozenset[str] | None:
    """Return what a callable's code uses of modules that are not the user's, as dotted names such as `openai.OpenAI`.

    None if its code cannot be read, as for objects of installed packages.
    """
    walk = _Walk(function)
    return frozenset(walk.imported) if walk.parts else None


def listed(parts: list[str], most: int = 5) -> str:
    """Return parts of code for a message; those of a program or a notebook without `__main__`."""
    names = [name.removeprefix("__main__.") for name in parts]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def changed_since_import(function: Callable[..., Any]) -> list[str]:
    """Return the parts of a callable's code whose files were edited after Python had imported them."""
    walk = _Walk(function)
    edited = {f"{module.name}.{name}" for module, name, loaded in walk.bound if differs_from_file(module, name, loaded)}
    gone = {f"{module.name}.{each.__qualname__}" for module, each in walk.unbound if is_gone_from_file(module, each)}
    return sorted(edited | gone)


class _Walk:
    def __init__(self, function: object, plain: Callable[[object], object] = repr) -> None:
        self.parts: dict[str, str] = {}
        self.bound: list[tuple[ModuleSource, str, object]] = []  # what modules bind: its name, and its value if known
        self.unbound: list[tuple[ModuleSource, FunctionType]] = []  # functions that their modules do not bind
        self.imported: set[str] = set()  # dotted names in modules that are not the user's
        self._plain = plain
        self._seen: set[object] = set()
        self.add_callable(function)

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
            if name in DYNAMIC:
                self.imported.add(f"builtins.{name}")
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
    return sorted({*code.co_names, *(name for nested in inner for name in _names_of(nested))})


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


@dataclass(frozen=True, slots=True)
class _Frame:
    """One line of the user's code that was being executed."""

    place: str  # such as `app.py:14 in parse`; the path is relative to the working folder
    line: str  # the source; empty if it is not known


def fault_text(error: BaseException) -> str:
    """Format an exception of the user's code as one line: type, message, the user's innermost frames, and its causes.

    Such as `ValueError: no digits in 'abc' (app.py:14 in parse, from app.py:9 in answer)`.
    """
    return "; ".join(f"{link}{_with_places(raised)}" for link, raised in _chain(error))


def trace_of(error: BaseException) -> str | None:
    """Return the user's frames of an exception with their source, outermost first, and then those of its causes.

    None if neither passed a frame of the user's.
    """
    chain = [(link, raised, _user_frames(raised)) for link, raised in _chain(error)]
    if not any(frames for _, _, frames in chain):
        return None
    lines = [line for link, raised, frames in chain for line in (f"{link}{_with_members(raised)}", *_traced(frames))]
    return "\n".join(lines[1:])  # the text of the error itself stands beside it


def _with_places(error: BaseException) -> str:
    places = [frame.place for frame in reversed(_user_frames(error)[-PLACES:])]
    return f"{_with_members(error)} ({', from '.join(places)})" if places else _with_members(error)


def _with_members(error: BaseException) -> str:
    """Describe an exception with its notes, and a group of exceptions with its members."""
    notes = [" ".join(str(note).split()) for note in getattr(error, "__notes__", ())]
    members = error.exceptions[:MEMBERS] if isinstance(error, BaseExceptionGroup) else ()
    what = f"{error.kind}: {error}" if isinstance(error, CallError) else describe(error)
    described = "; ".join((what, *notes))
    return f"{described}: {', '.join(map(_with_places, members))}" if members else described


def _chain(error: BaseException) -> list[tuple[str, BaseException]]:
    """Return an exception and what caused it, each with the words that link it to the one before."""
    links, seen = [("", error)], {id(error)}
    while (linked := _cause(links[-1][1])) is not None and id(linked[1]) not in seen:
        seen.add(id(linked[1]))
        links.append(linked)
    return links if len(links) <= LINKED else [*links[: LINKED - 1], links[-1]]


def _cause(error: BaseException) -> tuple[str, BaseException] | None:
    """Return the cause of an exception, if it says more.

    What a library handled inside itself is left out: only an explicit cause, or one that passed the user's code, tells
    something. The message of a CallError is complete, and its cause may quote a key.
    """
    if isinstance(error, CallError):
        return None
    if error.__cause__ is not None:
        return "caused by ", error.__cause__
    context = error.__context__
    if context is None or error.__suppress_context__ or not _user_frames(context):
        return None
    return "while handling ", context


def _traced(frames: list[_Frame]) -> Iterator[str]:
    """Yield the lines of a trace, outermost frame first."""
    if left_out := max(0, len(frames) - FRAMES):
        frames = [frames[0], _Frame(f"… {left_out} more", ""), *frames[1 - FRAMES :]]
    for frame in frames:
        yield f"  {frame.place}"
        if frame.line:
            yield f"    {frame.line}"


def _user_frames(error: BaseException) -> list[_Frame]:
    return [_frame(frame, line) for frame, line in walk_tb(error.__traceback__) if _is_users(frame)]


def _is_users(frame: FrameType) -> bool:
    names = frame.f_globals
    module = names.get("__package__") if names.get("__name__") == "__main__" else names.get("__name__")
    return str(module or "").partition(".")[0] != OURS and _is_users_file(frame.f_code.co_filename)


@lru_cache(maxsize=4096)
def _is_users_file(name: str) -> bool:
    """Return whether code of this file name is the user's; code without a file was typed in, unless Python made it."""
    return not name.startswith("<frozen") if name.startswith("<") else is_users(Path(os.path.realpath(name)))


def _frame(frame: FrameType, line: int) -> _Frame:
    code = frame.f_code
    linecache.checkcache(code.co_filename)  # the file may have been edited since it was read
    source = _SECRET.sub("…", linecache.getline(code.co_filename, line, frame.f_globals).strip())
    name = code.co_qualname.rpartition("<locals>.")[2]
    shortened = source if len(source) <= LINE_CHARS else source[: LINE_CHARS - 1] + "…"
    return _Frame(f"{_shown(code.co_filename)}:{line} in {name}", shortened)


def _shown(name: str) -> str:
    """Return a file's path relative to the working folder if it lies there, and a notebook's cell by its number."""
    ipython = sys.modules.get("IPython")
    if ipython is not None and (shell := ipython.get_ipython()) is not None:
        cell = getattr(shell.compile, "format_code_name", lambda _: None)(name)
        if cell:
            return str(cell[1])
    try:
        return str(Path(name).relative_to(Path.cwd()))
    except (ValueError, OSError):  # elsewhere, or the working folder is gone
        return name


def check_loaded(where: str, function: Callable[..., Any]) -> None:
    """Raise InputError for code that was edited after Python had imported it: the run would be of the older code."""
    if stale := changed_since_import(function):
        modules = sorted({name.rpartition(".")[0] for name in stale})
        reload = "; ".join(f"importlib.reload({module})" for module in modules)
        raise InputError(
            f"{where}: {listed(stale)} changed on disk after the import, wanted the module loaded again: {reload} and "
            "its names imported anew, or Python restarted"
        )
