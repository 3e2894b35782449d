"""Judge stored answers, pairs or items of production again, and the result: two judges side by side."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from evalflows.analysis.two_judges import TwoJudges, check_people, two_judges
from evalflows.api.comparisons import compare
from evalflows.api.programs import Evaluator, evaluator_fields
from evalflows.api.results import Compared, identity_of
from evalflows.api.running import run
from evalflows.api.traces import evaluate_traces
from evalflows.engine.budget_parts import AnySpec
from evalflows.engine.judging_again import GivenJudges, comparison_again, experiments_again, window_again, window_of
from evalflows.reports.progress import Watch
from evalflows.reports.two_judges import remarks_of, said_by
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.errors import InputError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.files import make_spec
from evalflows.store.queries.lookup import is_comparison
from evalflows.store.store import Store

if TYPE_CHECKING:
    import pandas as pd


class JudgedAgain:
    """What was judged again, beside what it was before. `record` has all figures."""

    def __init__(self, reference: str, people: str | None = None) -> None:
        self.record: TwoJudges = two_judges(Store(), reference, people)

    def __repr__(self) -> str:
        metrics = ", ".join(f"{metric.metric} ({len(metric.flips)} flips)" for metric in self.record.metrics)
        return f"JudgedAgain({self.record.name!r}, {len(self.ids)} judged again: {metrics})"

    def __str__(self) -> str:
        """Return what the other judge changes, one sentence per line."""
        return "\n".join(remark.text for remark in remarks_of(self.record))

    @property
    def ids(self) -> Sequence[str]:
        """The new experiments, in the order of the old ones; or the comparison, or the name of the trace evaluation."""
        return self.record.after

    def flips(self) -> "pd.DataFrame":
        """Return one row per metric and unit that the two judges score differently, the largest changes first."""
        import pandas as pd

        columns = ["metric", "example_id", "repetition", "before", "after"]
        columns += ["comment_before", "comment_after", "unit", "unit_after"]
        rows = [
            [
                *(metric.metric, flip.example_id, flip.repetition),
                *(said_by(metric, flip, "before"), said_by(metric, flip, "after")),
                *(flip.comment, flip.comment_after, flip.unit, flip.unit_after),
            ]
            for metric in self.record.metrics
            for flip in metric.flips
        ]
        return pd.DataFrame(rows, columns=columns)


def judge_again(
    *judged: Compared,
    evaluators: Sequence[Evaluator] | Evaluator | None = None,
    production: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    people: str | None = None,
    watch: Watch | None = None,
    **settings: Any,
) -> JudgedAgain:
    """Judge stored answers again, without asking the target, by other judges or by the same ones today; keep both.

    Args:
        judged: Experiments or run groups by id or name, or results of `evaluate`; or one comparison.
        evaluators: What stands in for the evaluators of the same metric: as in `evaluate`. Default: their own, and
            nothing is taken from the ledger.
        production: The trace evaluation whose items are judged again, instead of `judged`.
        since: The items that began since then.
        until: The items that began until then. Default: now.
        people: The metric of people's labels, if it is not the judge's.
        watch: Called every second with the progress.
        settings: Fields of the specs to change, such as budget_usd, max_calls and use_cache.

    Raise InputError, before anything is paid, for what cannot be judged again, and IncompleteError if judgements could
    not be made.
    """
    store, given = Store(), None
    check_people(store, people)
    if evaluators is not None:
        several = evaluators if isinstance(evaluators, list | tuple) else [evaluators]
        given = GivenJudges(evaluators=[*map(evaluator_fields, several)])
    references = [one if isinstance(one, str) else identity_of(store, one) for one in judged]
    spec = spec_again(references, given, production, since, until)
    if settings:
        spec = make_spec(type(spec), {**spec.model_dump(mode="json"), **settings}, (), "judge_again")
    return JudgedAgain(run_again(spec, watch), people)


def spec_again(
    references: Sequence[str],
    judges: GivenJudges | None,
    production: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> AnySpec:
    """Return the spec by which something is judged again. Raise InputError for what cannot be."""
    if production is not None:
        if references or since is None:
            got = f"{references[0]!r} beside it" if references else "no --since"
            raise InputError(f"--in {production!r}: got {got}, wanted a window of production alone: --since, --until")
        return window_again(production, since, until, judges)
    if since is not None or until is not None:
        raise InputError("judge: got --since or --until without --in, wanted --in EVALUATION")
    if not references:
        raise InputError("judge: got nothing, wanted experiments, a comparison, or --in EVALUATION")
    if not is_comparison(Store(), references[0]):
        return experiments_again(references, judges)
    if len(references) > 1:
        raise InputError(f"judge: got {len(references)} with a comparison among them, wanted a comparison alone")
    return comparison_again(references[0], judges)


def run_again(spec: AnySpec, watch: Watch | None = None) -> str:
    """Judge by such a spec, and return what `two_judges` finds it by. Errors are those of `run`."""
    if isinstance(spec, ExperimentSpec):
        return run(spec, None, watch)[0]
    if isinstance(spec, ComparisonSpec):
        return compare(spec, None, watch)
    since, until = window_of(spec)
    evaluate_traces(spec, backfill_from=since, backfill_to=until, watch=watch)
    return spec.name
