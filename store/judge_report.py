"""A judge against people, as a person reads it: the figures of the check that was kept, and what they say in words."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from store.catalog import ask
from store.comparison_report import percent
from store.parquet import Store
from store.results import figure, span

NAMES = {1.0: "yes", 0.0: "no"}
"""What 1 and 0 are called where all is yes or no."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReport:
    """One judge of one metric, held against people's labels."""

    metric: str
    passed: bool | None  # whether it agrees with people more than by chance; None where that is not known
    told: Mapping[str, Any]  # what was observed: docs/people.md

    @property
    def judge(self) -> str:
        model = self.told["judge_model"]
        return f"{self.told['evaluator']} ({model})" if model else str(self.told["evaluator"])

    @property
    def lines(self) -> list[tuple[str, str, str]]:
        """Each figure: what it is, its value and its interval; what is not known says why."""
        told, agreed = self.told, self.told.get("agreement") or {}
        found = []
        if agreed:
            found += [("agreement", _share(agreed["share"]), ""), ("Cohen's kappa", *_estimate(agreed, "kappa"))]
        found.append(("Krippendorff's alpha", *_estimate(told["alpha"], "alpha")))
        if told["people_alpha"]:
            found.append(("alpha of people among themselves", *_estimate(told["people_alpha"], "alpha")))
        if error := told.get("error"):
            found.append(("bias (judge minus people)", *_estimate(error, "bias", signed=True)))
            found.append(("variance of the error", figure(error["variance"], ""), ""))
            if told["kind"] == "numbers":
                found.append(("Spearman's correlation", figure(error["correlation"], ""), _why(error)))
        return found

    @property
    def confusion(self) -> tuple[list[str], list[list[str]]] | None:
        """A header and rows: what people say, how often the judge says what of it, and how much it agrees on."""
        table = self.told.get("confusion")
        if not table:
            return None
        names = [self._label(label) for label in table["labels"]]
        header = ["people say", *(f"judge: {name}" for name in names), "of these, the judge agrees on"]
        rows = [
            [name, *map(str, counts), percent(one["share"], one["low"], one["high"])]
            for name, counts, one in zip(names, table["counts"], table["found"], strict=True)
        ]
        return header, rows

    @property
    def means(self) -> list[tuple[str, str, str, str]]:
        """The mean three times: by the judge alone, by the labels alone, by both; each with how it came about."""
        told = self.told
        if "powered_mean" not in told:
            return []
        what = f"{told['candidate']} wins" if told["candidate"] else "mean"
        rows = [
            (f"{what}, judge alone", told["judge_mean"], f"{told['n_judged']} judgements"),
            (f"{what}, labels alone", told["labels_mean"], f"{told['n_labelled']} labelled"),
        ]
        found = [(name, *self._mean(one), how) for name, one, how in rows]
        if (why := told["no_powered_mean"]) is None:
            powered = told["powered_mean"]
            gain = "" if powered["gain"] is None else f", as sure as {powered['gain'] * powered['n_labels']:.0f} labels"
            both = f"{powered['n_labels']} labels and {powered['n_judged']} judgements{gain}"
            found.append((f"{what}, prediction-powered", *self._mean(powered), both))
        else:
            found.append((f"{what}, prediction-powered", "-", "", why))
        return found

    @property
    def sentences(self) -> list[str]:
        """What is to be said of it, for someone who reads no statistics."""
        return [*self._agreeing(), *self._leaning(), *self._mean_in_words(), *self._warnings()]

    def _agreeing(self) -> list[str]:
        alpha = self.told["alpha"]
        if alpha["alpha"] is None:
            return [f"{self.judge}: whether it agrees with people is not known: {alpha['reason']}"]
        agreed = self.told.get("agreement")
        share = "" if not agreed else f" on {agreed['share']:.0%} of what people labelled,"
        if self.passed is False:
            return [f"{self.judge} agrees with people{share} no more than chance might: do not rely on it"]
        if self.passed is None:
            return [f"{self.judge} agrees with people{share} how surely is not known: {alpha['reason']}"]
        said = f"{self.judge} agrees with people{share} more than by chance"
        among = self.told["people_alpha"]
        if among and among["alpha"] is not None:
            less = "about as well as" if among["alpha"] <= alpha["alpha"] else "less well than"
            said += f"; {less} people agree with each other (alpha {alpha['alpha']:.2f}, theirs {among['alpha']:.2f})"
        return [said]

    def _leaning(self) -> list[str]:
        error = self.told.get("error")
        if not error or error["low"] is None or self.told["kind"] == "pairs":
            return []
        amount = figure(abs(error["bias"]), "") if self.told["kind"] == "numbers" else f"{abs(error['bias']):.0%}"
        if error["low"] > 0:
            return [f"it is too generous: {amount} above people on average"]
        if error["high"] < 0:
            return [f"it is too strict: {amount} below people on average"]
        return ["it leans to no side that could be shown"]

    def _mean_in_words(self) -> list[str]:
        told = self.told
        if "powered_mean" not in told or told["no_powered_mean"] or told["powered_mean"]["low"] is None:
            return []
        bare, both = told["judge_mean"], told["powered_mean"]
        shown = " ".join(part for part in self._mean(both) if part)
        if bare["mean"] is None or both["low"] <= bare["mean"] <= both["high"]:
            return [f"had people labelled everything, they would have come to {shown}; the judge alone is within that"]
        alone = " ".join(part for part in self._mean(bare) if part)
        return [f"had people labelled everything, they would have come to {shown}: do not report the judge's {alone}"]

    def _warnings(self) -> list[str]:
        told, found = self.told, []
        if "powered_mean" in told and (why := told["no_powered_mean"] or told["powered_mean"]["reason"]):
            found.append(f"no prediction-powered interval: {why}")
        if told["n_left_out"]:
            found.append(f"{told['n_left_out']} labelled are left out: of no fair sample, or not judged")
        if told.get("n_split"):
            found.append(f"on {told['n_split']} people are split evenly, so that they say nothing there")
        if told["drawn_unevenly"]:
            found.append("bias and means weigh each label by its chance; agreement, kappa and alpha do not")
        if told["n_missing"]:
            found.append(f"{told['n_missing']} judgements are missing")
        return found

    def _label(self, label: Any) -> str:
        return NAMES.get(label, str(label)) if self.told["kind"] == "yes_no" else str(label)

    def _mean(self, one: Mapping[str, Any]) -> tuple[str, str]:
        if self.told["kind"] == "numbers":
            return figure(one["mean"], ""), span(one["low"], one["high"], "")
        text = percent(one["mean"], one["low"], one["high"])
        value, _, interval = text.partition(" ")
        return value, interval


def judge_reports(store: Store, batch: str) -> list[JudgeReport]:
    """What is to be shown of a batch of checks against people."""
    (rows,) = ask(store, (_REPORTS, [batch]))
    return [JudgeReport(metric=metric, passed=passed, told=json.loads(told)) for metric, passed, told in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One judge's place among all that have labels beside them."""

    evaluator: str
    evaluator_version: str
    judge_model: str
    metric: str
    people_metric: str
    n_judgements: int
    n_labels: int
    agreement: float
    kappa: float | None
    bias: float | None
    correlation: float | None
    from_feedback: bool


def judge_standings(store: Store) -> Sequence[Standing]:
    """All judges that have labels beside them: by what people were asked, the best first."""
    (rows,) = ask(store, (_STANDINGS, []))
    return [Standing(**dict(zip(Standing.__slots__, row, strict=True))) for row in rows]


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _estimate(found: Mapping[str, Any], name: str, *, signed: bool = False) -> tuple[str, str]:
    """A figure, and its interval or why there is none."""
    interval = span(found["low"], found["high"], "", signed=signed) or f"no interval: {found['reason']}"
    return figure(found[name], "", signed=signed), interval


def _why(error: Mapping[str, Any]) -> str:
    return error["correlation_reason"] or ""


_REPORTS = """
select subject_id, passed, observed::varchar from checks
where batch_id = ? and subject_kind = 'judge' and name = 'people' order by check_id
"""

_STANDINGS = """
select evaluator, evaluator_version, judge_model, metric, people_metric, n_judgements, n_labels, agreement, kappa, bias,
       correlation, from_feedback
from judge_quality
order by people_metric, coalesce(kappa, correlation) desc nulls last, agreement desc, evaluator, evaluator_version
"""
