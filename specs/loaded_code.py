"""Whether code that was imported differs from its file by now, as after an edit in a notebook's session.

The version of a function follows its file. If the file was edited but not reloaded, Python still runs the code that it
imported, and the version would be that of code that does not run.
"""

import ast
import sys
from functools import lru_cache
from importlib.machinery import SourceFileLoader
from inspect import unwrap
from pathlib import Path
from types import CodeType, FunctionType

from evalflows.specs.module_source import ModuleSource


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


def _is_file_as_imported(source: ModuleSource) -> bool:
    """Return whether a module's file is the one that Python compiled, by the time and size kept with the bytecode."""
    try:
        header = Path(sys.modules[source.name].__cached__ or "").read_bytes()[8:16]
        state = source.path.stat()
    except (AttributeError, KeyError, OSError):
        return False
    modified, size = (int.from_bytes(header[place : place + 4], "little") for place in (0, 4))
    return (modified, size) == (int(state.st_mtime) & 0xFFFFFFFF, state.st_size & 0xFFFFFFFF)


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
