"""References to code, their signatures, and versions of code."""

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from referenced_code import APP, Import, closure
from user_places import without_places

from evalflows.specs.errors import InputError
from evalflows.specs.reference import load, refer, version_of

# Loading


def problem(reference: str) -> str:
    with pytest.raises(InputError) as caught:
        load(reference)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("reference", ["", "judge", ":judge", "module:", "module.judge", ":"])
def test_malformed_references_are_refused(reference: str) -> None:
    assert problem(reference) == f"{reference!r}: wanted 'module:name'"


def test_a_module_that_fails_to_import_is_refused_in_one_line(write_module: Import) -> None:
    with pytest.raises(ValueError, match="two"):
        write_module("reference_broken", "raise ValueError('two\\nlines')")
    assert without_places(problem("reference_broken:judge")) == (
        "'reference_broken:judge': cannot import 'reference_broken': ValueError: two lines"
    )


@pytest.mark.parametrize("name", ["nothing", "Judge.nothing", "judge.", "Judge.strict.more"])
def test_a_name_missing_from_the_module_is_refused(app: Any, name: str) -> None:
    assert problem(f"reference_app:{name}") == f"'reference_app:{name}': 'reference_app' has no {name!r}"


# Making references


def live_callables(app: Any) -> list[Callable[..., Any]]:
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
def test_other_callables_get_a_live_reference(app: Any, index: int) -> None:
    function = live_callables(app)[index]
    reference = refer(function)
    assert reference.startswith("live:")
    assert load(reference) is function
    assert refer(function) == reference


def test_functions_of_a_module_that_is_being_imported_are_live(write_module: Import) -> None:
    """Another thread that imports it, as a run at the module's top level makes one do, would wait for ever."""
    text = "from evalflows.specs.reference import refer\ndef judge(): ...\nreference = refer(judge)\n"
    module = write_module("reference_importing", text)
    assert (module.reference[:5], refer(module.judge)) == ("live:", "reference_importing:judge")


def test_a_live_reference_of_another_process_is_refused() -> None:
    assert problem("live:judge-0123abcd-7f00") == (
        "'live:judge-0123abcd-7f00': got a function of another process, wanted 'module:name'"
    )


# Versions


@pytest.mark.parametrize(
    ("old", "new"), [("< limit", "<= limit"), ("limit=3)", "limit=4)"), ('"""Judges."""', '"""Judges strictly."""')]
)
def test_a_version_changes_with_the_source(write_module: Import, old: str, new: str) -> None:
    assert old in APP
    before = version_of(write_module("reference_one", APP).judge)
    assert version_of(write_module("reference_two", APP).judge) == before
    assert version_of(write_module("reference_three", APP.replace(old, new)).judge) != before


def test_a_version_changes_with_settings_partial_arguments_and_attributes(app: Any) -> None:
    versions = {
        version_of(app.judge, *settings) for settings in ((), ("a",), ("b",), ("a", "b"), ("ab",), (None,), (1,))
    }
    assert len(versions) == 7
    partials = [
        app.judge,
        functools.partial(app.judge),
        functools.partial(app.judge, "x"),
        functools.partial(app.judge, limit=1),
        functools.partial(app.judge, limit=2),
    ]
    assert len({version_of(partial) for partial in partials}) == 5
    assert version_of(functools.partial(app.judge, limit=1)) == version_of(partials[3])
    assert version_of(app.Judge(1)) != version_of(app.Judge(2))
    assert version_of(app.Judge(1)) == version_of(app.Judge(1))


@pytest.mark.parametrize(
    ("one", "other"), [(1, 2), (1, "1"), (1, 1.0), (0, False), ("a", b"a"), ([1, 2], [2, 1]), (None, 0), ((), (1,))]
)
def test_a_version_changes_with_closure_values(one: object, other: object) -> None:
    assert version_of(closure(one)) != version_of(closure(other))
    assert version_of(closure(one)) == version_of(closure(one))


def with_default(limit: object) -> Callable[..., object]:
    def judge(outputs: str, limit: object = limit) -> object:
        return outputs == limit

    return judge


def with_named_default(limit: object) -> Callable[..., object]:
    def judge(outputs: str, *, limit: object = limit) -> object:
        return outputs == limit

    return judge


@pytest.mark.parametrize("make", [with_default, with_named_default])
def test_a_version_changes_with_default_values(make: Callable[[object], Callable[..., object]]) -> None:
    assert version_of(make(1)) != version_of(make(2))
    assert version_of(make(1)) == version_of(make(1))


def without_source(body: str) -> Callable[..., Any]:
    """A function without source, like one typed at Python's prompt."""
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
def test_a_version_changes_with_code_without_source(one: str, other: str) -> None:
    assert version_of(without_source(one)) != version_of(without_source(other))
    assert version_of(without_source(one)) == version_of(without_source(one))


def test_a_decorated_function_is_versioned_by_its_own_source(write_module: Import) -> None:
    wrap = "def wrap(f):\n    @functools.wraps(f)\n    def inner(*a):\n        return f(*a)\n    return inner\n\n"
    source = "import functools\n\n" + wrap + "@wrap\ndef judge(outputs):\n    return {}\n"
    one, other = (write_module(f"reference_{i}", source.replace("{}", str(i))) for i in (1, 2))
    assert version_of(one.judge) != version_of(other.judge)


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


def test_a_version_does_not_depend_on_object_addresses(app: Any) -> None:
    things = [type("Thing", (), {})() for _ in range(3)]
    assert len({version_of(closure(thing)) for thing in things}) == 1
    assert len({version_of(functools.partial(app.judge, limit=thing)) for thing in things}) == 1
    assert len({version_of(functools.partial(app.judge, thing)) for thing in things}) == 1


def test_a_non_callable_is_refused(app: Any) -> None:
    assert problem("reference_app:LIMIT") == "'reference_app:LIMIT': got int, wanted a callable"
