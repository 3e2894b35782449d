"""Naming code by text, and telling by a version whether it is the same code."""

import functools
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalflows.specs.errors import InputError
from evalflows.specs.reference import is_async, load, name_of, parameters_of, refer, version_of

APP = '''
import functools

LIMIT = 3


def judge(outputs, limit=3):
    """Judges."""
    return len(outputs) < limit


class Judge:
    def __init__(self, limit):
        self.limit = limit

    def __call__(self, outputs):
        return len(outputs) < self.limit

    def score(self, outputs):
        return len(outputs) < self.limit

    @staticmethod
    def strict(outputs):
        return False


strict = Judge(1)
shout = lambda text: text.upper()
'''

Import = Callable[..., Any]


@pytest.fixture
def write_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Import:
    """`write_module(name, source)`: the module, imported; it is forgotten after the test."""
    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)

    def write(name: str, source: str) -> Any:
        (folder / f"{name}.py").write_text(source, encoding="utf-8")
        monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.invalidate_caches()
        module = importlib.import_module(name)
        monkeypatch.setitem(sys.modules, name, module)
        return module

    return write


@pytest.fixture
def app(write_module: Import) -> Any:
    return write_module("reference_app", APP)


# Loading


@pytest.mark.parametrize("name", ["judge", "Judge", "Judge.strict", "strict", "shout"])
def test_what_a_module_holds_is_loaded(app: Any, name: str) -> None:
    wanted = app
    for part in name.split("."):
        wanted = getattr(wanted, part)
    assert load(f"reference_app:{name}") is wanted


def problem(reference: str) -> str:
    with pytest.raises(InputError) as caught:
        load(reference)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("reference", ["", "judge", ":judge", "module:", "module.judge", ":"])
def test_a_text_that_is_no_reference_is_refused(reference: str) -> None:
    assert problem(reference) == f"{reference!r}: wanted 'module:name'"


def test_a_module_that_is_not_there_is_refused() -> None:
    assert problem("no.such:judge") == (
        "'no.such:judge': cannot import 'no.such': ModuleNotFoundError: No module named 'no'"
    )


def test_a_module_that_raises_is_refused_in_one_line(write_module: Import) -> None:
    with pytest.raises(ValueError, match="two"):
        write_module("reference_broken", "raise ValueError('two\\nlines')")
    assert problem("reference_broken:judge") == (
        "'reference_broken:judge': cannot import 'reference_broken': ValueError: two lines"
    )


@pytest.mark.parametrize("module", ["..", ".judges", "a b"])
def test_a_module_name_that_cannot_be_is_refused(module: str) -> None:
    assert problem(f"{module}:judge").startswith(f"'{module}:judge': cannot import ")


@pytest.mark.parametrize("name", ["nothing", "Judge.nothing", "judge.", "Judge.strict.more"])
def test_a_name_that_the_module_has_not_is_refused(app: Any, name: str) -> None:
    assert problem(f"reference_app:{name}") == f"'reference_app:{name}': 'reference_app' has no {name!r}"


def test_what_cannot_be_called_is_refused(app: Any) -> None:
    assert problem("reference_app:LIMIT") == "'reference_app:LIMIT': got int, wanted a callable"


# Referring


def closure(limit: object) -> Callable[..., object]:
    def judge(outputs: str) -> object:
        return outputs == limit

    return judge


@pytest.mark.parametrize("name", ["judge", "Judge", "Judge.strict"])
def test_what_a_module_holds_is_referred_to_by_its_place(app: Any, name: str) -> None:
    function = load(f"reference_app:{name}")
    assert refer(function) == f"reference_app:{name}"


def test_a_builtin_is_referred_to_by_its_place() -> None:
    assert refer(json.dumps) == "json:dumps"
    assert refer(len) == "builtins:len"


def live_ones(app: Any) -> list[Callable[..., Any]]:
    return [
        closure(1),
        lambda outputs: outputs,
        functools.partial(app.judge, limit=2),
        app.Judge(2),
        app.Judge(2).score,
        app.strict,
        app.shout,
    ]


@pytest.mark.parametrize("index", range(7))
def test_what_no_text_can_name_lives_in_this_process(app: Any, index: int) -> None:
    function = live_ones(app)[index]
    reference = refer(function)
    assert reference.startswith("live:")
    assert load(reference) is function
    assert refer(function) == reference


def test_two_closures_of_one_source_are_told_apart() -> None:
    one, same, other = closure(1), closure(1), closure(2)
    assert len({refer(one), refer(same), refer(other)}) == 3
    assert load(refer(same)) is same


def test_a_function_that_was_replaced_in_its_module_is_not_mixed_up_with_the_new_one(app: Any) -> None:
    old = app.judge
    app.judge = lambda outputs: True
    assert load(refer(old)) is old


def test_a_function_of_main_is_live_since_no_other_process_has_it(app: Any) -> None:
    app.judge.__module__ = "__main__"
    assert refer(app.judge).startswith("live:judge-")


def test_a_live_reference_of_another_process_is_refused() -> None:
    assert problem("live:judge-0123abcd-7f00") == (
        "'live:judge-0123abcd-7f00': got a function of another process, wanted 'module:name'"
    )


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (closure(1), "judge"),
        (lambda outputs: outputs, "function"),
        (functools.partial(closure(1), 1), "judge"),
        (json.JSONDecoder(), "JSONDecoder"),
        (len, "len"),
    ],
)
def test_a_callable_has_a_name_for_messages(function: Callable[..., Any], name: str) -> None:
    assert name_of(function) == name


# Versions


def test_a_version_is_16_hex_digits(app: Any) -> None:
    assert len(version_of(app.judge)) == 16
    assert int(version_of(app.judge), 16) >= 0


@pytest.mark.parametrize(
    ("old", "new"),
    [("< limit", "<= limit"), ("limit=3)", "limit=4)"), ('"""Judges."""', '"""Judges strictly."""')],
)
def test_a_version_changes_with_the_source(write_module: Import, old: str, new: str) -> None:
    assert old in APP
    before = version_of(write_module("reference_one", APP).judge)
    assert version_of(write_module("reference_two", APP).judge) == before
    assert version_of(write_module("reference_three", APP.replace(old, new)).judge) != before


def test_a_version_does_not_change_with_the_code_around_it(write_module: Import) -> None:
    before = version_of(write_module("reference_one", APP).judge)
    changed = "# a new first line\n" + APP.replace("LIMIT = 3", "LIMIT = 4")
    assert version_of(write_module("reference_two", changed).judge) == before


def test_a_version_changes_with_settings(app: Any) -> None:
    versions = {
        version_of(app.judge, *settings) for settings in ((), ("a",), ("b",), ("a", "b"), ("ab",), (None,), (1,))
    }
    assert len(versions) == 7


@pytest.mark.parametrize(
    ("one", "other"), [(1, 2), (1, "1"), (1, 1.0), (0, False), ("a", b"a"), ([1, 2], [2, 1]), (None, 0), ((), (1,))]
)
def test_a_version_changes_with_what_a_closure_holds(one: object, other: object) -> None:
    assert version_of(closure(one)) != version_of(closure(other))
    assert version_of(closure(one)) == version_of(closure(one))


def test_a_version_changes_with_a_table_that_a_closure_holds() -> None:
    assert version_of(closure({"tone": 0.5})) != version_of(closure({"tone": 0.9}))
    assert version_of(closure({"tone": 0.5, "fact": 1})) == version_of(closure({"fact": 1, "tone": 0.5}))


def with_default(limit: object) -> Callable[..., object]:
    def judge(outputs: str, limit: object = limit) -> object:
        return outputs == limit

    return judge


def with_named_default(limit: object) -> Callable[..., object]:
    def judge(outputs: str, *, limit: object = limit) -> object:
        return outputs == limit

    return judge


@pytest.mark.parametrize("make", [with_default, with_named_default])
def test_a_version_changes_with_the_value_of_a_default(make: Callable[[object], Callable[..., object]]) -> None:
    assert version_of(make(1)) != version_of(make(2))
    assert version_of(make(1)) == version_of(make(1))


def test_a_version_changes_with_what_a_partial_fixes(app: Any) -> None:
    partials = [
        app.judge,
        functools.partial(app.judge),
        functools.partial(app.judge, "x"),
        functools.partial(app.judge, limit=1),
        functools.partial(app.judge, limit=2),
    ]
    assert len({version_of(partial) for partial in partials}) == 5
    assert version_of(functools.partial(app.judge, limit=1)) == version_of(partials[3])


def test_a_version_changes_with_an_objects_settings(app: Any) -> None:
    assert version_of(app.Judge(1)) != version_of(app.Judge(2))
    assert version_of(app.Judge(1)) == version_of(app.Judge(1))


def test_a_version_changes_with_the_settings_of_a_methods_object(app: Any) -> None:
    assert version_of(app.Judge(1).score) != version_of(app.Judge(2).score)
    assert version_of(app.Judge(1).score) == version_of(app.Judge(1).score)


def test_a_version_changes_between_two_lambdas_of_one_line() -> None:
    one, other = (lambda outputs: outputs == "yes"), (lambda outputs: outputs == "no")
    assert version_of(one) != version_of(other)


def without_source(body: str) -> Callable[..., Any]:
    """As a function typed at Python's prompt is."""
    names: dict[str, Any] = {}
    exec(f"def judge(outputs):\n    return {body}", names)
    return names["judge"]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("outputs == 1", "outputs == 2"),
        ("outputs < 1", "outputs > 1"),
        ("outputs.lower()", "outputs.upper()"),
        ("[x for x in outputs if x > 1]", "[x for x in outputs if x > 2]"),
    ],
)
def test_a_version_changes_with_code_that_has_no_source(one: str, other: str) -> None:
    assert version_of(without_source(one)) != version_of(without_source(other))
    assert version_of(without_source(one)) == version_of(without_source(one))


def test_a_decorated_functions_version_is_of_its_own_source(write_module: Import) -> None:
    wrap = "def wrap(f):\n    @functools.wraps(f)\n    def inner(*a):\n        return f(*a)\n    return inner\n\n"
    source = "import functools\n\n" + wrap + "@wrap\ndef judge(outputs):\n    return {}\n"
    one, other = (write_module(f"reference_{i}", source.replace("{}", str(i))) for i in (1, 2))
    assert version_of(one.judge) != version_of(other.judge)


class Thing:
    """An object whose text has its address in it."""


def test_a_version_does_not_depend_on_where_an_object_lies(app: Any) -> None:
    things = [Thing() for _ in range(3)]
    assert len({version_of(closure(thing)) for thing in things}) == 1
    assert len({version_of(functools.partial(app.judge, limit=thing)) for thing in things}) == 1
    assert len({version_of(functools.partial(app.judge, thing)) for thing in things}) == 1


VERSIONS = """
import functools, json
import reference_app as app
from evalflows.specs.reference import version_of

def closure(held):
    def judge(outputs):
        return outputs in held and (lambda x: {"a", "b", x})
    return judge

functions = [
    app.judge, app.Judge, app.Judge(2), app.Judge(2).score, app.shout, len, closure(1), closure("a"),
    closure({"a", "b", "c"}), closure(frozenset("xyz")), closure(app.judge), closure(object()),
    functools.partial(app.judge, limit=2), functools.partial(app.judge, limit={"a", "b", "c"}),
    functools.partial(app.judge, limit=object()),
]
names = {}
exec("def judge(o):\\n    return o in {'a', 'b', 'c'} and (lambda: 1)", names)
functions.append(names["judge"])
print(json.dumps([version_of(function, "setting", 1) for function in functions]))
"""


def test_versions_are_the_same_in_every_process(app: Any, tmp_path: Path) -> None:
    found = []
    for seed in ("1", "2"):
        path = os.pathsep.join([str(tmp_path / "modules"), str(Path(__file__).parents[2])])
        env = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": path}
        done = subprocess.run(
            [sys.executable, "-c", VERSIONS], capture_output=True, text=True, check=True, timeout=30, env=env
        )
        found.append(json.loads(done.stdout))
    differing = [i for i, (one, other) in enumerate(zip(*found, strict=True)) if one != other]
    assert differing == []
    assert len(found[0]) == 16


# Signatures


async def asynchronous(outputs: str) -> None: ...


class AsyncCallable:
    async def __call__(self, outputs: str) -> None: ...


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (asynchronous, True),
        (functools.partial(asynchronous, "x"), True),
        (AsyncCallable(), True),
        (AsyncCallable().__call__, True),
        (closure(1), False),
        (len, False),
        (functools.partial(closure(1), "x"), False),
    ],
)
def test_what_is_awaited_is_told_from_what_is_not(function: Callable[..., Any], wanted: bool) -> None:
    assert is_async(function) is wanted


def test_parameters_are_read(app: Any) -> None:
    assert [parameter.name for parameter in parameters_of(app.judge, "it")] == ["outputs", "limit"]
    assert [parameter.name for parameter in parameters_of(app.Judge(1), "it")] == ["outputs"]


def test_parameters_that_cannot_be_read_are_an_input_error() -> None:
    with pytest.raises(InputError) as caught:
        parameters_of(dict, "evaluator 'x'")
    assert str(caught.value) == "evaluator 'x': its parameters cannot be read; wrap it in a function"
