"""References: loading code by its text, making the text, and reading signatures."""

import functools
import json
from collections.abc import Callable
from typing import Any

import pytest
from referenced_code import Import, closure
from user_places import without_places

from evalflows.specs.errors import InputError
from evalflows.specs.reference import is_async, load, name_of, parameters_of, refer

# Loading


@pytest.mark.parametrize("name", ["judge", "Judge", "Judge.strict", "strict", "shout"])
def test_names_in_a_module_are_loaded(app: Any, name: str) -> None:
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
def test_malformed_references_are_refused(reference: str) -> None:
    assert problem(reference) == f"{reference!r}: wanted 'module:name'"


def test_a_missing_module_is_refused() -> None:
    assert problem("no.such:judge") == (
        "'no.such:judge': cannot import 'no.such': ModuleNotFoundError: No module named 'no'"
    )


def test_a_module_that_fails_to_import_is_refused_in_one_line(write_module: Import) -> None:
    with pytest.raises(ValueError, match="two"):
        write_module("reference_broken", "raise ValueError('two\\nlines')")
    assert without_places(problem("reference_broken:judge")) == (
        "'reference_broken:judge': cannot import 'reference_broken': ValueError: two lines"
    )


@pytest.mark.parametrize("module", ["..", ".judges", "a b"])
def test_invalid_module_names_are_refused(module: str) -> None:
    assert problem(f"{module}:judge").startswith(f"'{module}:judge': cannot import ")


@pytest.mark.parametrize("name", ["nothing", "Judge.nothing", "judge.", "Judge.strict.more"])
def test_a_name_missing_from_the_module_is_refused(app: Any, name: str) -> None:
    assert problem(f"reference_app:{name}") == f"'reference_app:{name}': 'reference_app' has no {name!r}"


def test_a_non_callable_is_refused(app: Any) -> None:
    assert problem("reference_app:LIMIT") == "'reference_app:LIMIT': got int, wanted a callable"


# Making references


@pytest.mark.parametrize("name", ["judge", "Judge", "Judge.strict"])
def test_importable_callables_are_referenced_by_module_and_name(app: Any, name: str) -> None:
    function = load(f"reference_app:{name}")
    assert refer(function) == f"reference_app:{name}"


def test_builtins_are_referenced_by_module_and_name() -> None:
    assert refer(json.dumps) == "json:dumps"
    assert refer(len) == "builtins:len"


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


def test_closures_of_the_same_source_get_different_references() -> None:
    one, same, other = closure(1), closure(1), closure(2)
    assert len({refer(one), refer(same), refer(other)}) == 3
    assert load(refer(same)) is same


def test_a_function_replaced_in_its_module_keeps_its_own_reference(app: Any) -> None:
    old = app.judge
    app.judge = lambda outputs: True
    assert load(refer(old)) is old


def test_functions_of_main_get_a_live_reference(app: Any) -> None:
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
def test_async_callables_are_recognized(function: Callable[..., Any], wanted: bool) -> None:
    assert is_async(function) is wanted


def test_parameters_are_read(app: Any) -> None:
    assert [parameter.name for parameter in parameters_of(app.judge, "it")] == ["outputs", "limit"]
    assert [parameter.name for parameter in parameters_of(app.Judge(1), "it")] == ["outputs"]


def test_unreadable_parameters_are_an_input_error() -> None:
    with pytest.raises(InputError) as caught:
        parameters_of(dict, "evaluator 'x'")
    assert str(caught.value) == "evaluator 'x': its parameters cannot be read; wrap it in a function"
