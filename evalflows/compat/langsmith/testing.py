"""LangSmith's `testing` and `expect`: what a test marked `@pytest.mark.langsmith` logs about itself.

A suite is an experiment, and each test an example.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from evalflows.compat.langchain import SHARE, edit_distance, embedding_distance
from evalflows.compat.langsmith.cases import Note, case_or_none, current_case, judging
from evalflows.compat.langsmith.schemas import Fields
from evalflows.llm.wrapped import plain
from evalflows.specs.errors import InputError, short

__all__ = ["log_feedback", "log_inputs", "log_outputs", "log_reference_outputs", "trace_feedback"]


def test(*given: Any, **settings: Any) -> Any:
    """Mark a test as `@pytest.mark.langsmith` does, with the same settings."""
    import pytest  # late: clients need none

    marked = pytest.mark.langsmith(**settings) if settings or not given else pytest.mark.langsmith
    return marked(*given) if given else marked


test.__test__ = False  # type: ignore[attr-defined]  # a module that imports it has no test of this name
unit = test

_FIELDS = {"key", "score", "value", "comment", "metadata"}


def log_inputs(inputs: dict[str, Any], /) -> None:
    """Add to the inputs of the running test's example. All of these raise InputError outside of a marked test."""
    current_case("log_inputs").inputs |= _mapping("log_inputs", inputs)


def log_outputs(outputs: dict[str, Any], /) -> None:
    """Add to the outputs of the running test."""
    current_case("log_outputs").outputs |= _mapping("log_outputs", outputs)


def log_reference_outputs(reference_outputs: dict[str, Any], /) -> None:
    """Add to the reference outputs of the running test's example."""
    current_case("log_reference_outputs").reference_outputs |= _mapping("log_reference_outputs", reference_outputs)


def log_feedback(
    feedback: dict[str, Any] | list[dict[str, Any]] | None = None,
    /,
    *,
    key: str | None = None,
    score: float | bool | None = None,
    value: str | float | bool | None = None,
    **kwargs: Any,
) -> None:
    """Log a judgement of the running test: `key` with `score` or `value`, and a `comment`; or mappings of these.

    Raise InputError for a judgement without a key, for an unknown field, and for a second one of the same key.
    """
    case = current_case("log_feedback")
    own = {"key": key, "score": score, "value": value, **kwargs}
    if feedback is not None and any(field is not None for field in own.values()):
        raise InputError("log_feedback: got both feedback and its fields, wanted one of them")
    logged: Sequence[Any] = [own] if feedback is None else [feedback] if isinstance(feedback, Mapping) else feedback
    for fields in logged:
        case.log(*_note(_mapping("log_feedback", fields)))


@contextmanager
def trace_feedback(*, name: str = "Feedback") -> Iterator[None]:
    """Judge in this block: its model calls belong to the judgements that it logs, and are no steps of the test."""
    with judging(current_case("trace_feedback")):
        yield


def _note(fields: Fields) -> tuple[str, Note]:
    given = {name: value for name, value in fields.items() if value is not None}
    if unknown := given.keys() - _FIELDS:
        raise InputError(f"log_feedback: got {min(unknown)!r}, wanted only {', '.join(sorted(_FIELDS))}")
    if "key" not in given:
        raise InputError(f"log_feedback: got {short(fields)}, wanted a key")
    return str(given.pop("key")), Note(**given)


def _mapping(where: str, fields: object) -> Fields:
    if not isinstance(fields, Mapping):
        raise InputError(f"{where}: got {short(fields)}, wanted a dict")
    return {str(name): plain(value) for name, value in fields.items()}


class Matcher:
    """A value to expect something of. A failed expectation raises AssertionError; in a marked test both are logged."""

    def __init__(self, key: str, value: Any) -> None:
        self.key, self.value = key, value

    def to_be_less_than(self, value: float) -> None:
        __tracebackhide__ = True
        self._hold(self.value < value, "to_be_less_than", f"less than {value!r}")

    def to_be_greater_than(self, value: float) -> None:
        __tracebackhide__ = True
        self._hold(self.value > value, "to_be_greater_than", f"greater than {value!r}")

    def to_be_between(self, min_value: float, max_value: float) -> None:
        """Expect a value above the one and below the other."""
        __tracebackhide__ = True
        held = min_value < self.value < max_value
        self._hold(held, "to_be_between", f"between {min_value!r} and {max_value!r}")

    def to_be_approximately(self, value: float, precision: int = 2) -> None:
        """Expect a number that is the same if both are rounded to so many digits."""
        __tracebackhide__ = True
        held = round(self.value, precision) == round(value, precision)
        self._hold(held, "to_be_approximately", f"{value!r}, rounded to {precision} digits")

    def to_equal(self, value: Any) -> None:
        __tracebackhide__ = True
        self._hold(self.value == value, "to_equal", repr(value))

    def to_be_none(self) -> None:
        __tracebackhide__ = True
        self._hold(self.value is None, "to_be_none", "None")

    def to_contain(self, value: Any) -> None:
        __tracebackhide__ = True
        self._hold(value in self.value, "to_contain", f"something with {value!r} in it")

    def against(self, func: Callable[[Any], Any], /) -> None:
        """Expect that a function returns something true for the value."""
        __tracebackhide__ = True
        self._hold(bool(func(self.value)), "against", f"a value for which {getattr(func, '__name__', 'it')} is true")

    def _hold(self, held: bool, method: str, wanted: str) -> None:
        __tracebackhide__ = True
        text = f"{self.key}: got {self.value!r:.200}, wanted {wanted}"
        if case := case_or_none():
            case.expect(bool(held), f"{self.key}.{method}" if held else text)
        if not held:
            raise AssertionError(text)


class Expect:
    """`expect(value)`, and scores that are logged: `expect.score`, `expect.edit_distance`, `expect.embedding_distance`.

    Outside of a marked test nothing is logged.
    """

    def __call__(self, value: Any, /) -> Matcher:
        return self.value(value)

    def value(self, value: Any) -> Matcher:
        return Matcher("value", value)

    def score(
        self, score: float | bool, *, key: str = "score", source_run_id: Any = None, comment: str | None = None
    ) -> Matcher:
        """Log a score. `source_run_id` has no effect: evaluators' work is not recorded as runs."""
        return _logged(key, Note(score=score, comment=comment))

    def edit_distance(self, prediction: str, reference: str, *, config: Mapping[str, Any] | None = None) -> Matcher:
        """Log the edit distance of two texts, from 0 (equal) to 1.

        `config` has `metric` (damerau_levenshtein, levenshtein, jaro, jaro_winkler, hamming, indel) and
        `normalize_score`. Raise InputError for anything else in it.
        """
        settings = _settings("edit_distance", config, ("metric", "normalize_score"))
        metric = settings.get("metric") or "damerau_levenshtein"
        normalised = bool(settings.get("normalize_score", True))
        distance = edit_distance(prediction, reference, metric, normalised=normalised)
        comment = f"{metric}, {'normalised' if normalised else 'in characters'}"
        return _distance("edit_distance", distance, comment, SHARE if normalised else None)

    def embedding_distance(
        self, prediction: str, reference: str, *, config: Mapping[str, Any] | None = None
    ) -> Matcher:
        """Log the distance of two texts' vectors, by default one minus their cosine.

        `config` has `metric` (cosine, euclidean, manhattan, chebyshev, hamming) and `encoder`, a function from texts to
        vectors; the default asks the connection `openai`. Raise InputError for anything else in it.
        """
        settings = _settings("embedding_distance", config, ("metric", "encoder"))
        metric, encoder = settings.get("metric") or "cosine", settings.get("encoder")
        distance = embedding_distance(prediction, reference, metric, encoder)
        return _distance("embedding_distance", distance, f"{metric}, {'own encoder' if encoder else 'openai'}")


def _distance(key: str, distance: float, comment: str, bounds: tuple[float, float] | None = None) -> Matcher:
    return _logged(key, Note(score=distance, comment=comment, higher_is_better=False, range=bounds))


def _logged(key: str, note: Note) -> Matcher:
    if case := case_or_none():
        case.log(key, note)
    return Matcher(key, note.score)


def _settings(where: str, config: Mapping[str, Any] | None, known: tuple[str, ...]) -> Mapping[str, Any]:
    if unknown := (config or {}).keys() - {*known}:
        raise InputError(f"expect.{where}: config: got {min(unknown)!r}, wanted only {' and '.join(known)}")
    return config or {}


expect = Expect()
