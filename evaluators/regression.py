"""Numbers of answers against those of references, over all runs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from evalflows.evaluators.declarations import Direction, checks_examples, declares
from evalflows.evaluators.figures import Figures, figures_by
from evalflows.evaluators.paths import path_roots, pick, reference_value, value_at
from evalflows.evaluators.score import Score, number_in
from evalflows.evaluators.settings import checked_choice, is_number
from evalflows.evaluators.views import ExampleView
from evalflows.specs.errors import short

Measure = Literal["mae", "rmse", "bias", "pearson", "spearman", "r2"]

USUAL: tuple[Measure, ...] = ("mae", "rmse", "spearman")

_DECLARED: Mapping[str, Direction] = {
    "mae": {"higher_is_better": False},
    "rmse": {"higher_is_better": False},
    "bias": {},
    "pearson": {"higher_is_better": True, "range": [-1.0, 1.0]},
    "spearman": {"higher_is_better": True, "range": [-1.0, 1.0]},
    "r2": {"higher_is_better": True},
}


def _metrics(name: str, settings: Mapping[str, Any]) -> dict[str, Direction]:
    named = _named(settings.get("measures", USUAL), settings.get("prefix", ""))
    return {metric: _DECLARED[measure] for metric, measure in named.items()}


def _named(measures: Any, prefix: Any) -> dict[str, Measure]:
    """Return the measure of each metric. Raise ValueError for a measure that does not exist."""
    chosen = measures if isinstance(measures, list | tuple) else [measures]
    if not chosen:
        raise ValueError("measures: got an empty list, wanted at least one")
    if not isinstance(prefix, str):
        raise ValueError(f"prefix: got {short(prefix)}, wanted a text")
    return {f"{prefix}{measure}": checked_choice("measures", measure, Measure) for measure in chosen}


def _check_references(examples: Iterable[ExampleView], settings: Mapping[str, Any]) -> None:
    """Raise ValueError for a reference that is no number, and if there is none."""
    path, is_empty, n_numbers = settings.get("expected"), True, 0
    for example in examples:
        is_empty = False
        try:
            n_numbers += _expected(example.inputs, example.reference_outputs, example.metadata, path) is not None
        except ValueError as error:
            raise ValueError(f"example {example.id!r}: {error}") from error
    if not (is_empty or n_numbers):
        raise ValueError(f"expected: no example has a number at {path or 'the reference'}")


def _compared(
    inputs: Sequence[dict[str, Any]],
    outputs: Sequence[dict[str, Any] | None],
    reference_outputs: Sequence[dict[str, Any] | None],
    *,
    expected: str | None = None,
    got: str | None = None,
    measures: Sequence[Measure] = USUAL,
    prefix: str = "",
) -> Figures | None:
    """Return the figures of `regression`, with the same arguments."""
    import numpy as np

    from evalflows.stats.regression import Regression

    named = _named(measures, prefix)
    wanted = [_expected(*row, None, expected) for row in zip(inputs, reference_outputs, strict=True)]
    given = [
        None if number is None or output is None else _answered(row, output, got)
        for row, output, number in zip(inputs, outputs, wanted, strict=True)
    ]
    places = np.flatnonzero([number is not None for number in given])
    if not places.size:
        return None
    numbers = np.array([[wanted[at], given[at]] for at in places], dtype=np.float64)
    figures = Regression(numbers[:, 0], numbers[:, 1], [*named.values()])
    return Figures(
        metrics=[*named],
        n_runs=len(wanted),
        statistic=lambda weights: figures(weights[:, places]),
        n_missing=sum(number is not None for number in wanted) - len(places),
    )


@declares(_metrics)
@checks_examples(_check_references)
@figures_by(_compared)
def regression(
    inputs: Sequence[dict[str, Any]],
    outputs: Sequence[dict[str, Any] | None],
    reference_outputs: Sequence[dict[str, Any] | None],
    *,
    expected: str | None = None,
    got: str | None = None,
    measures: Sequence[Measure] = USUAL,
    prefix: str = "",
) -> list[Score] | None:
    """How near numbers are to those of the references, over all runs, with a metric per measure and an interval for
    each.

    `expected` and `got` are paths to the number, such as `reference_outputs.grade` and `outputs.grade`, by default the
    only field; a text that is a number counts. mae: the mean of `|got - expected|`. rmse: the root of the mean square.
    bias: the mean of got - expected, which has no better direction. pearson and spearman: the correlation of the
    numbers and of their ranks, which a constant shift does not change. r2: 1 - (the squared errors) / (those of always
    answering the mean of the references); below 0 if worse than that. `prefix` stands before the names of all metrics.

    A failed run is missing, and so is an answer that is no number. Runs without a reference are left out; None if no
    run has both. It cannot see which errors matter.
    """
    if isinstance(outputs, dict):
        raise TypeError("got the outputs of one run, wanted those of all runs: list it under summary_evaluators")
    figures = _compared(
        inputs, outputs, reference_outputs, expected=expected, got=got, measures=measures, prefix=prefix
    )
    if figures is None:
        return None
    said = f"{figures.n_missing} without a number are missing" if figures.n_missing else None
    return figures.scores(_UNDEFINED, said)


_UNDEFINED = "not defined: all numbers are the same"


def _expected(
    inputs: dict[str, Any], reference: dict[str, Any] | None, metadata: dict[str, Any] | None, path: str | None
) -> float | None:
    if path is None:
        return _number("expected", reference_value(reference, None))
    return _number("expected", value_at("expected", path, path_roots(inputs, {}, reference, metadata)))


def _answered(inputs: dict[str, Any], output: dict[str, Any], path: str | None) -> float | None:
    """Return the number of an answer; None if it is none."""
    try:
        value = pick(output, None) if path is None else value_at("got", path, path_roots(inputs, output, None, None))
        return _number("got", value)
    except ValueError:
        return None


def _number(setting: str, value: Any) -> float | None:
    if value is None:
        return None
    number = float(value) if is_number(value) else number_in(value) if isinstance(value, str) else None
    if number is None:
        raise ValueError(f"{setting}: got {short(value)}, wanted a number, or a path to it")
    return number
