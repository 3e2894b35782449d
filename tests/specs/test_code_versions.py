"""Versions of code: they change with source, settings and held values, and with nothing else."""

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

from evalflows.specs.reference import version_of


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


def test_a_version_ignores_surrounding_code(write_module: Import) -> None:
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
def test_a_version_changes_with_closure_values(one: object, other: object) -> None:
    assert version_of(closure(one)) != version_of(closure(other))
    assert version_of(closure(one)) == version_of(closure(one))


def test_a_version_changes_with_a_dict_in_a_closure() -> None:
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
def test_a_version_changes_with_default_values(make: Callable[[object], Callable[..., object]]) -> None:
    assert version_of(make(1)) != version_of(make(2))
    assert version_of(make(1)) == version_of(make(1))


def test_a_version_changes_with_partial_arguments(app: Any) -> None:
    partials = [
        app.judge,
        functools.partial(app.judge),
        functools.partial(app.judge, "x"),
        functools.partial(app.judge, limit=1),
        functools.partial(app.judge, limit=2),
    ]
    assert len({version_of(partial) for partial in partials}) == 5
    assert version_of(functools.partial(app.judge, limit=1)) == version_of(partials[3])


def test_a_version_changes_with_an_objects_attributes(app: Any) -> None:
    assert version_of(app.Judge(1)) != version_of(app.Judge(2))
    assert version_of(app.Judge(1)) == version_of(app.Judge(1))


def test_a_version_changes_with_the_attributes_of_a_bound_object(app: Any) -> None:
    assert version_of(app.Judge(1).score) != version_of(app.Judge(2).score)
    assert version_of(app.Judge(1).score) == version_of(app.Judge(1).score)


def test_two_lambdas_on_one_line_have_different_versions() -> None:
    one, other = (lambda outputs: outputs == "yes"), (lambda outputs: outputs == "no")
    assert version_of(one) != version_of(other)


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


class Thing:
    """An object whose repr contains its address."""


def test_a_version_does_not_depend_on_object_addresses(app: Any) -> None:
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
