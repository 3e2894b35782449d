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

    `loaded` is the function, if it may be an older one than that of the module. False for everything else, and for
    modules that something rewrites as they are imported, as pytest does.
    """
    module, statements = sys.modules.get(source.name), source.statements[name]
    if module is None or type(getattr(module, "__loader__", None)) is not SourceFileLoader or len(statements) != 1:
        return False
    (statement,), loaded = statements, loaded or getattr(module, name, None)
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return _is_other_function(unwrap(loaded) if callable(loaded) else None, statement, source)
        case ast.Assign(value=ast.Constant(value=str(text))) | ast.AnnAssign(value=ast.Constant(value=str(text))):
            return isinstance(loaded, str) and loaded != text
    return False


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
