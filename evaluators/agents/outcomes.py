"""Rules about what an agent brought about: the state of its world, what it did there, and at which cost in turns."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from evalflows.evaluators.agents.trajectory import Call, json_type, read_calls, read_trajectory, same
from evalflows.evaluators.declarations import Direction, declares, needs_reference, share
from evalflows.evaluators.figures import Figures, figures_by
from evalflows.evaluators.paths import path_roots, value_at
from evalflows.evaluators.score import Score
from evalflows.evaluators.settings import is_number
from evalflows.evaluators.views import Evaluations, ItemResult, RunView
from evalflows.specs.columns import checked_messages, turns_of
from evalflows.specs.errors import short

MOST_SHOWN = 5
"""Differences that a comment names."""

Order = Literal["any", "in_order"]


@declares(share)
@needs_reference
def state_matches(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    metadata: dict[str, Any] | None = None,
    *,
    state: str = "outputs.state",
    expected: str = "reference_outputs.state",
    ignore: Sequence[str] = (),
    tolerance: float = 0.0,
    whole: bool = False,
) -> Score | None:
    """Whether the state of the world at the end is the expected one: 1 or 0; the comment names up to five differences.

    `state` and `expected` are dotted paths. What is expected may be a part: fields that it does not name are not
    compared, unless `whole`. Lists are compared element by element. `ignore` lists paths inside the state that do not
    count, such as `orders.A1.changed_at`, with `*` for any field or element. Numbers may differ by `tolerance`; 1
    equals 1.0, but not True or "1". None without an expected state. Raise ValueError for outputs without a state, and
    for an invalid setting. It cannot see how the state came about.
    """
    roots = path_roots(inputs, outputs, reference_outputs, metadata)
    wanted, got = value_at("expected", expected, roots), value_at("state", state, roots)
    if wanted is None:
        return None
    if not is_number(tolerance) or tolerance < 0:
        raise ValueError(f"tolerance: got {short(tolerance)}, wanted a number of at least 0")
    ignored = [path.split(".") for path in _listed("ignore", ignore)]
    found = [*_differences(wanted, got, (), ignored, tolerance, whole)]
    more = [f"and {len(found) - MOST_SHOWN} more"] if len(found) > MOST_SHOWN else []
    return Score(value=not found, comment="; ".join([*found[:MOST_SHOWN], *more]) or None)


def _listed(setting: str, given: Any) -> list[str]:
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(isinstance(item, str) for item in given):
        raise ValueError(f"{setting}: got {short(given)}, wanted a list of texts")
    return [*given]


def _differences(
    wanted: Any, got: Any, path: tuple[str, ...], ignored: Sequence[Sequence[str]], tolerance: float, whole: bool
) -> Iterator[str]:
    """Yield in words where a state differs from what is expected."""
    if any(_is_at(pattern, path) for pattern in ignored):
        return
    where = ".".join(path) or "the state"
    if isinstance(wanted, Mapping) and isinstance(got, Mapping):
        for name, value in wanted.items():
            yield from _differences(value, got.get(name), (*path, name), ignored, tolerance, whole)
        for name in (name for name in got if name not in wanted) if whole else ():
            yield from _differences(None, got[name], (*path, name), ignored, tolerance, whole)
    elif isinstance(wanted, list) and isinstance(got, list) and len(wanted) == len(got):
        for index, (value, other) in enumerate(zip(wanted, got, strict=True)):
            yield from _differences(value, other, (*path, str(index)), ignored, tolerance, whole)
    elif isinstance(wanted, list) and isinstance(got, list):
        yield f"{where}: {len(got)} elements, wanted {len(wanted)}"
    elif not (_is_near(wanted, got, tolerance) or same(wanted, got)):
        yield f"{where}: {short(got)}, wanted {short(wanted)}"


def _is_at(pattern: Sequence[str], path: Sequence[str]) -> bool:
    return len(pattern) == len(path) and all(one in ("*", name) for one, name in zip(pattern, path, strict=True))


def _is_near(wanted: Any, got: Any, tolerance: float) -> bool:
    numbers = json_type(wanted) in ("integer", "number") and json_type(got) in ("integer", "number")
    return numbers and math.isclose(wanted, got, rel_tol=1e-12, abs_tol=tolerance)


@declares(share)
@needs_reference
def actions_match(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    metadata: dict[str, Any] | None = None,
    run: RunView | None = None,
    *,
    required: str = "reference_outputs.actions",
    forbidden: Sequence[str] | str = "reference_outputs.forbidden",
    at_most: Mapping[str, int] | str = "reference_outputs.at_most",
    order: Order = "any",
) -> Score | None:
    """Whether an agent did what it had to and nothing that it must not: 1 or 0; the comment names what is wrong.

    `required` is the path of calls (a name, or a name with the arguments that must be equal; others are not compared),
    each of which must have been made, with order `in_order` one after the other, whatever happens between them.
    `forbidden` are names of tools that must not be called, and `at_most` the most calls by tool, as lists or mappings
    or as paths to them. None if the example has none of the three. Raise ValueError for an invalid setting. It cannot
    see what the calls returned.
    """
    roots = path_roots(inputs, outputs, reference_outputs, metadata)
    needed = value_at("required", required, roots)
    banned = value_at("forbidden", forbidden, roots) if isinstance(forbidden, str) else forbidden
    most = value_at("at_most", at_most, roots) if isinstance(at_most, str) else at_most
    if needed is None and not banned and not most:
        return None
    if order not in ("any", "in_order"):
        raise ValueError(f"order: got {short(order)}, wanted any or in_order")
    if not isinstance(most or {}, Mapping):
        raise ValueError(f"at_most: got {short(most)}, wanted a mapping of tools to numbers")
    made = read_trajectory(outputs, inputs, run).tool_calls
    counts = Counter(call.name for call in made)
    missing = _missing(_required(needed), made, order)
    faults = [f"no call of {call.name if call.arguments == {} else call}" for call in missing]
    faults += [f"{name} was called" for name in _listed("forbidden", banned or []) if counts[name]]
    faults += [
        f"{name} was called {_times(counts[name])}, at most {number} wanted"
        for name, number in (most or {}).items()
        if counts[name] > _most(name, number)
    ]
    return Score(value=not faults, comment="; ".join(faults) or None)


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _most(name: str, number: Any) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ValueError(f"at_most: {name}: got {short(number)}, wanted a whole number of at least 0")
    return number


def _required(given: Any) -> Sequence[Call]:
    listed = [] if given is None else given
    if not isinstance(listed, list | tuple):
        raise ValueError(f"required: got {short(given)}, wanted a list of calls")
    return read_calls([{"name": item} if isinstance(item, str) else item for item in listed], "required")


def _missing(needed: Sequence[Call], made: Sequence[Call], order: Order) -> Iterator[Call]:
    """Yield the calls that were not made; each call that was made counts once."""
    left = list(made)
    for call in needed:
        place = next((index for index, other in enumerate(left) if _does(other, call)), None)
        if place is None:
            yield call
        elif order == "in_order":
            left = left[place + 1 :]
        else:
            del left[place]


def _does(made: Call, needed: Call) -> bool:
    arguments, wanted = made.arguments or {}, needed.arguments or {}
    return made.name == needed.name and all(
        name in arguments and same(value, arguments[name]) for name, value in wanted.items()
    )


def _fewer_is_better(name: str, settings: Mapping[str, Any]) -> dict[str, Direction]:
    return {name: {"higher_is_better": False}}


@declares(_fewer_is_better)
def turns_to_goal(
    outputs: dict[str, Any], scores: Evaluations | None = None, *, solved: str | None = None
) -> int | None:
    """The number of turns that the target took; lower is better.

    With `solved`, the name of a metric of the same evaluation, only conversations count for which that is at least 1:
    to give up early is no way to be quick. None without messages, and for a conversation that is not solved. It cannot
    see how much was done in a turn.
    """
    if not outputs.get("messages"):
        return None
    if solved is not None:
        found = (scores or Evaluations()).get(solved)
        if found is None or not isinstance(found.value, int | float) or found.value < 1:
            return None
    return len(turns_of(checked_messages(outputs["messages"])))


@declares(_fewer_is_better)
def tool_errors(outputs: dict[str, Any], run: RunView | None = None) -> Score:
    """The number of tool calls that failed, among the run's steps; lower is better. The comment names the tools.

    It cannot see calls of tools that are not recorded as steps, nor whether the agent or the tool was at fault.
    """
    steps = [step for step in (run.steps if run else []) if step.get("kind") == "tool" and step.get("error")]
    failed = Counter(str(step.get("name")) for step in steps)
    named = ", ".join(f"{name} failed {_times(number)}" for name, number in failed.most_common())
    return Score(value=failed.total(), comment=named or None)


@declares(_fewer_is_better)
def cost_per_solved(item_results: Sequence[ItemResult], *, solved: str = "state_matches") -> Score | None:
    """What a solved task costs in USD, over all runs of an experiment: the cost of all, divided by the number solved.

    `solved` is the metric that is at least 1 for a solved task. For `summary_evaluators`; lower is better. None if no
    task is solved, and if the cost of any run is unknown. It cannot see the cost of judges, nor
    how much of it one task took.
    """
    costs = [result.run.cost_usd for result in item_results]
    scores = [found.value for result in item_results if (found := result.evaluations.get(solved)) is not None]
    n_solved = sum(isinstance(value, int | float) and value >= 1 for value in scores)
    if not n_solved or None in costs:
        return None
    total = sum(cost for cost in costs if cost is not None)
    return Score(value=total / n_solved, comment=f"{total:.4g} USD for {n_solved} of {len(costs)} solved")


def _cost_figures(item_results: Sequence[ItemResult], *, solved: str = "state_matches") -> Figures | None:
    """Return the figure of `cost_per_solved`, with the same arguments; None if the cost of any run is unknown."""
    import numpy as np

    scores = [found.value if (found := result.evaluations.get(solved)) else None for result in item_results]
    is_solved = np.array([isinstance(value, int | float) and value >= 1 for value in scores])
    costs = [result.run.cost_usd for result in item_results]
    if None in costs or not is_solved.any():
        return None
    usd, counts = np.array(costs, dtype=np.float64), is_solved.astype(np.float64)

    def statistic(weights: Any) -> Any:
        n_solved = weights @ counts
        return (weights @ usd / np.where(n_solved > 0, n_solved, np.nan))[:, None]

    return Figures(metrics=[""], n_runs=len(costs), statistic=statistic)


figures_by(_cost_figures)(cost_per_solved)  # not above it: the source of an evaluator is its version
