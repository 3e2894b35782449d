"""What became of a candidate, in a word that every door shows: what gates concluded, else what its metrics say."""

from collections.abc import Iterable, Sequence
from typing import Literal

from evalflows.analysis.figures import figure
from evalflows.reports.decisions import Decision
from evalflows.reports.results import CONCLUSIONS, UNDECIDED, Result
from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.specs.metric_names import LATENCY, MEASURES
from evalflows.store.records import DecisionConclusion

Kind = Literal["worse", "better", "changed", "open", "calm"]
"""The colour of a headline."""

GATES: dict[DecisionConclusion, Kind] = {"FAIL": "worse", "NOT ENOUGH EVIDENCE": "open", "PASS": "better"}
"""What gates conclude, the worst first."""

DEAR = (LATENCY, "cost")
"""Measures that, significantly worse, keep a candidate from being called better."""

CALM = "no significant difference"


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """What became of one candidate."""

    word: str
    kind: Kind
    gates: Sequence[str]  # that concluded it; none if the word is of the metrics
    against: str  # `new against old`
    verdicts: str  # by metric, in words; empty without a common metric

    @property
    def sentence(self) -> str:
        """Everything in a sentence, empty without a common metric; the word is left out if it begins with it."""
        if not self.verdicts:
            return ""
        by = f" by gate {', '.join(self.gates)}" if self.gates else ""
        is_said = not by and self.verdicts.startswith(self.word)
        return f"{self.against}: {'' if is_said else f'{self.word}{by}: '}{self.verdicts}"


def headline(results: Sequence[Result], decisions: Iterable[Decision] = ()) -> Headline:
    """Return the headline of one candidate.

    Args:
        results: Its own.
        decisions: The newest of each gate, also on others. One that compared with another baseline counts if it failed.
    """
    judged = [result for result in results if result.baseline and result.metric not in MEASURES]
    dear = [result for result in results if result.metric in DEAR and result.conclusion == "worse"]
    word, kind = _of_metrics(judged, dear)
    baselines = {None, *(result.baseline_experiment_id for result in judged)}
    of_it = {result.experiment_id for result in results}
    on_it = [
        decision
        for decision in decisions
        if decision.candidate_experiment_id in of_it
        and (decision.conclusion == "FAIL" or decision.baseline_experiment_id in baselines)
    ]
    worst = next((name for name in GATES if any(decision.conclusion == name for decision in on_it)), None)
    return Headline(
        word=worst or word,
        kind=GATES[worst] if worst else kind,
        gates=[decision.gate for decision in on_it if decision.conclusion == worst],
        against=f"{judged[0].target} against {judged[0].baseline}" if judged else "",
        verdicts=_verdicts([*judged, *dear]) if judged else "",
    )


def verdict_sentences(results: Sequence[Result], decisions: Sequence[Decision] = ()) -> list[str]:
    """Return one sentence per candidate: how it compares with the baseline."""
    by_target = grouped((result.target, result) for result in results)
    return [text for some in by_target.values() if (text := headline(some, decisions).sentence)]


def _of_metrics(judged: Sequence[Result], dear: Sequence[Result]) -> tuple[str, Kind]:
    """Return what the metrics say together; never better while one of them is significantly worse."""
    found = {result.conclusion for result in judged}
    if not judged:
        return "no metric in common", "calm"
    if "better" in found and (dear or "worse" in found):
        return "mixed", "changed"
    if "worse" in found:
        return "worse", "worse"
    if dear:
        return f"worse in {', '.join(result.metric for result in dear)}", "worse"
    if "better" in found:
        return "better", "better"
    if found <= {"no_worse", "equivalent"}:
        return ("equivalent" if found == {"equivalent"} else "no worse"), "calm"
    is_calm = all(result.reason_code == "no_significant_difference" for result in judged)
    return (CALM, "calm") if is_calm else ("not enough evidence", "open")


def _verdicts(results: Sequence[Result]) -> str:
    places = [*CONCLUSIONS]
    ordered = sorted(results, key=lambda r: (places.index(r.conclusion or UNDECIDED), not r.difference))
    metrics = grouped((result.verdict_text, _with_figures(result)) for result in ordered)
    return "; ".join(f"{verdict} in {', '.join(named)}" for verdict, named in metrics.items())


def _with_figures(result: Result) -> str:
    """Return the metric with its difference; if that is not significant, with the minimum detectable effect."""
    if result.conclusion != UNDECIDED:
        return f"{result.metric} {result.difference_text}"
    if result.minimum_detectable_effect is None or result.reason_code != "no_significant_difference":
        return result.metric
    size = figure(result.minimum_detectable_effect, result.metric)
    return f"{result.metric} (minimum detectable effect {size})"
