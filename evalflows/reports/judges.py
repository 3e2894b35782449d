"""The report of a judge's agreement with human labels: its figures, and sentences about them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evalflows.reports.figures import estimate, figure, percent, percent_estimate
from evalflows.store.catalog import ask
from evalflows.store.parquet import Store

NAMES = {1.0: "yes", 0.0: "no"}
"""Names of 1 and 0 for yes/no labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReport:
    """One judge of one metric, compared with human labels."""

    metric: str
    passed: bool | None  # whether it agrees with people better than chance; None if unknown
    observed: Mapping[str, Any]  # the figures of the check, see docs/people.md

    @property
    def judge(self) -> str:
        model = self.observed["judge_model"]
        return f"{self.observed['evaluator']} ({model})" if model else str(self.observed["evaluator"])

    @property
    def lines(self) -> list[tuple[str, str, str]]:
        """Each figure's name, value, and interval or the reason why there is none."""
        observed, agreed = self.observed, self.observed.get("agreement") or {}
        rows = []
        if agreed:
            rows += [("agreement", _share(agreed["share"]), ""), ("Cohen's kappa", *_estimate(agreed, "kappa"))]
        rows.append(("Krippendorff's alpha", *_estimate(observed["alpha"], "alpha")))
        if observed["people_alpha"]:
            rows.append(("alpha among people", *_estimate(observed["people_alpha"], "alpha")))
        if error := observed.get("error"):
            rows.append(("bias (judge minus people)", *_estimate(error, "bias", signed=True)))
            rows.append(("variance of the error", figure(error["variance"], ""), ""))
            if observed["kind"] == "numbers":
                rows.append(("Spearman's correlation", figure(error["correlation"], ""), _why(error)))
        return rows

    @property
    def confusion(self) -> tuple[list[str], list[list[str]]] | None:
        """The confusion matrix as header and rows: people's label, counts of the judge's labels, and agreement."""
        table = self.observed.get("confusion")
        if not table:
            return None
        names = [self._label(label) for label in table["labels"]]
        header = ["people", *(f"judge: {name}" for name in names), "agreement"]
        rows = [
            [name, *map(str, counts), percent(share["share"], share["low"], share["high"])]
            for name, counts, share in zip(names, table["counts"], table["found"], strict=True)
        ]
        return header, rows

    @property
    def means(self) -> list[tuple[str, str, str, str]]:
        """The mean by the judge only, by the labels only, and prediction-powered, each with its basis."""
        observed = self.observed
        if "powered_mean" not in observed:
            return []
        what = f"{observed['candidate']} wins" if observed["candidate"] else "mean"
        single = [
            (f"{what}, judge only", observed["judge_mean"], f"{observed['n_judged']} judgements"),
            (f"{what}, labels only", observed["labels_mean"], f"{observed['n_labelled']} labelled"),
        ]
        rows = [(name, *self._mean(mean), basis) for name, mean, basis in single]
        if (why := observed["no_powered_mean"]) is None:
            powered = observed["powered_mean"]
            gain = (
                "" if powered["gain"] is None else f", as precise as {powered['gain'] * powered['n_labels']:.0f} labels"
            )
            both = f"{powered['n_labels']} labels and {powered['n_judged']} judgements{gain}"
            rows.append((f"{what}, prediction-powered", *self._mean(powered), both))
        else:
            rows.append((f"{what}, prediction-powered", "-", "", why))
        return rows

    @property
    def sentences(self) -> list[str]:
        """The report in sentences."""
        return [*self._agreement(), *self._bias(), *self._mean_in_words(), *self._warnings()]

    def _agreement(self) -> list[str]:
        alpha = self.observed["alpha"]
        if alpha["alpha"] is None:
            return [f"{self.judge}: agreement with people is unknown: {alpha['reason']}"]
        agreed = self.observed.get("agreement")
        share = "" if not agreed else f" on {agreed['share']:.0%} of the labelled items,"
        if self.passed is False:
            return [f"{self.judge} agrees with people{share} not significantly better than chance: do not rely on it"]
        if self.passed is None:
            return [f"{self.judge} agrees with people{share} but significance is unknown: {alpha['reason']}"]
        sentence = f"{self.judge} agrees with people{share} significantly better than chance"
        among = self.observed["people_alpha"]
        if among and among["alpha"] is not None:
            less = "about as well as" if among["alpha"] <= alpha["alpha"] else "less well than"
            sentence += (
                f"; {less} people agree with each other (alpha {alpha['alpha']:.2f}, people {among['alpha']:.2f})"
            )
        return [sentence]

    def _bias(self) -> list[str]:
        error = self.observed.get("error")
        if not error or error["low"] is None or self.observed["kind"] == "pairs":
            return []
        amount = figure(abs(error["bias"]), "") if self.observed["kind"] == "numbers" else f"{abs(error['bias']):.0%}"
        if error["low"] > 0:
            return [f"it is too generous: {amount} above people on average"]
        if error["high"] < 0:
            return [f"it is too strict: {amount} below people on average"]
        return ["it shows no significant bias"]

    def _mean_in_words(self) -> list[str]:
        observed = self.observed
        if "powered_mean" not in observed or observed["no_powered_mean"] or observed["powered_mean"]["low"] is None:
            return []
        judge, powered = observed["judge_mean"], observed["powered_mean"]
        estimate = " ".join(part for part in self._mean(powered) if part)
        if judge["mean"] is None or powered["low"] <= judge["mean"] <= powered["high"]:
            return [
                f"estimated mean if people labelled everything: {estimate}; the judge's mean is within the interval"
            ]
        biased = " ".join(part for part in self._mean(judge) if part)
        return [f"estimated mean if people labelled everything: {estimate}; do not report the judge's {biased}"]

    def _warnings(self) -> list[str]:
        observed, warnings = self.observed, []
        if "powered_mean" in observed and (why := observed["no_powered_mean"] or observed["powered_mean"]["reason"]):
            warnings.append(f"no prediction-powered interval: {why}")
        if observed["n_left_out"]:
            warnings.append(f"{observed['n_left_out']} labelled are left out: not from a random sample, or not judged")
        if observed.get("n_split"):
            warnings.append(f"people are evenly split on {observed['n_split']}, which are left out")
        if observed["drawn_unevenly"]:
            warnings.append(
                "bias and means weight each label by its sampling probability; agreement, kappa and alpha do not"
            )
        if observed["n_missing"]:
            warnings.append(f"{observed['n_missing']} judgements are missing")
        return warnings

    def _label(self, label: Any) -> str:
        return NAMES.get(label, str(label)) if self.observed["kind"] == "yes_no" else str(label)

    def _mean(self, mean: Mapping[str, Any]) -> tuple[str, str]:
        if self.observed["kind"] == "numbers":
            return estimate(mean["mean"], mean["low"], mean["high"], "")
        return percent_estimate(mean["mean"], mean["low"], mean["high"])


def judge_reports(store: Store, batch: str) -> list[JudgeReport]:
    """Return the reports of a batch of checks against human labels."""
    (rows,) = ask(store, (_REPORTS, [batch]))
    return [JudgeReport(metric=metric, passed=passed, observed=json.loads(figures)) for metric, passed, figures in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedJudge:
    """One judge's agreement with human labels, over all experiments; several labels of an item count once."""

    evaluator: str
    evaluator_version: str
    judge_model: str
    metric: str
    people_metric: str
    n_items: int  # without those on which people are evenly split, unless they gave numbers
    n_labels: int
    agreement: float | None  # the share of items; None of numbers
    kappa: float | None
    bias: float | None
    correlation: float | None
    from_feedback: bool


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _estimate(estimated: Mapping[str, Any], name: str, *, signed: bool = False) -> tuple[str, str]:
    """Return a figure, and its interval or why there is none."""
    value, interval = estimate(estimated[name], estimated["low"], estimated["high"], "", signed=signed, marks=(0,))
    return value, interval or f"no interval: {estimated['reason']}"


def _why(error: Mapping[str, Any]) -> str:
    return error["correlation_reason"] or ""


_REPORTS = """
select subject_id, passed, observed::varchar from checks
where batch_id = ? and subject_kind = 'judge' and name = 'people' order by check_id
"""
