"""What was judged twice, in sentences: agreement, who is stricter, flips, verdicts and gates, cost, and labels."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Literal

from evalflows.analysis.figures import estimate, estimate_text, figure, percent, usd
from evalflows.analysis.two_judges import AgainstLabels, Found, MetricOfTwo, TwoJudges, VerdictOfTwo
from evalflows.reports.judges import NAMES
from evalflows.reports.results import conclusion_text
from evalflows.specs import hints
from evalflows.specs.escaping import one_line
from evalflows.specs.frozen import dataclass
from evalflows.store.queries.two_judges import MetricJudge, Texts, TwoJudgements, texts_of_runs
from evalflows.store.store import Store

MOST_RULES = 3
"""Rules of a gate that a sentence names."""

About = Literal["agreement", "stricter", "flips", "verdict", "gate", "labels", "cost", "note"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    about: About
    text: str
    is_loud: bool = False  # whether the other judge changes what one would decide, or is worse


def names_of_judges(metric: MetricOfTwo) -> tuple[str, str]:
    """Return what the two are called: their models if these differ, else when they judged."""
    models = metric.before.judge_model, metric.after.judge_model
    if None not in models and models[0] != models[1]:
        return str(models[0]), str(models[1])
    return "the judge before", "the judge now"


def remarks_of(record: TwoJudges, *, with_cost: bool = True) -> list[Remark]:
    """Return everything in sentences, what decides first; the cost only if it is asked for."""
    found = list[Remark]()
    if not record.is_complete:
        how = "the same command judges the rest"
        if record.subjects != "items":
            how = f"{hints.resume(record.after[0]).code} judges the rest"
        found.append(Remark(about="note", text=f"not all was judged again: {how}", is_loud=True))
    for gate in record.gates:
        said = f"gate {gate.gate} on {gate.candidate}: {gate.before} before, {gate.after} now"
        changed = [now.text for now in gate.rules_after if now.text not in {was.text for was in gate.rules_before}]
        reasons = "; ".join(changed[:MOST_RULES]) or "every rule as before"
        if gate.not_judged_again and gate.after != gate.before:
            reasons += f"; {hints.judge_again(*gate.not_judged_again).code} judges its baseline again too"
        found.append(Remark(about="gate", text=f"{said}: {reasons}", is_loud=gate.before != gate.after))
    found += [_verdict(record, verdict) for verdict in record.verdicts if _is_of(record, verdict)]
    found += [remark for metric in record.metrics for remark in _of_metric(record, metric)]
    found += [remark for metric in record.metrics for remark in _labels(metric)]
    if with_cost:
        found += [remark for metric in record.metrics for remark in _cost(metric)]
    for before, after in record.unscored:
        text = f"{before.metric}: nothing was scored by both: {before.n_judged} before, {after.n_judged} now"
        error = after.error or before.error
        found.append(Remark(about="note", text=f"{text}{f': {one_line(error)}' if error else ''}", is_loud=True))
    return found


def _is_of(record: TwoJudges, verdict: VerdictOfTwo) -> bool:
    """Return whether a verdict is on a metric that was judged, or has changed, as of a composite."""
    return verdict.metric in {m.metric for m in record.metrics} or verdict.before.conclusion != verdict.after.conclusion


def _of_metric(record: TwoJudges, metric: MetricOfTwo) -> Iterator[Remark]:
    share = percent(metric.share.share, metric.share.low, metric.share.high)
    text = f"{metric.metric}: the same score on {share} of {metric.n} {record.subjects}"
    for name, chance in (("kappa", metric.kappa), ("alpha", metric.alpha)):
        if chance is not None and (value := getattr(chance, name)) is not None:
            text += f", {name} {' '.join(filter(None, estimate(value, chance.low, chance.high, '', marks=(0,))))}"
    yield Remark(about="agreement", text=text)
    missing = [judge.n_failed for judge in (metric.before, metric.after)]
    if any(missing):
        text = f"{metric.metric}: {missing[0]} judgements failed before, {missing[1]} now; they count nowhere"
        yield Remark(about="note", text=text)
    if (found := metric.difference) is not None:
        before, after = names_of_judges(metric)
        values = estimate_text(found.difference, found.low, found.high, "", signed=True)
        means = f"{figure(metric.before_mean, '')} before, {figure(metric.after_mean, '')} now, {values}"
        said = {"before": f"{before} is stricter", "after": f"{after} is stricter"}.get(metric.stricter or "")
        if metric.kind == "pairs":  # no answer of a pair is judged more strictly
            said = said and f"{after if (found.difference or 0) > 0 else before} prefers the candidate more often"
            what = "win rate"
        else:
            said, what = said or "neither is significantly stricter", "mean"
        said = said or "neither prefers the candidate significantly more often"
        yield Remark(about="stricter", text=f"{metric.metric}: {said}: {what} {means}", is_loud=bool(metric.stricter))
    yield Remark(about="flips", text=f"{metric.metric}: {_flips(metric)}")


def _flips(metric: MetricOfTwo) -> str:
    if not metric.flips:
        return "nothing is judged differently"
    ways = Counter((said_by(metric, flip, "before"), said_by(metric, flip, "after")) for flip in metric.flips)
    text = f"{len(metric.flips)} judged differently"
    if metric.kind == "numbers":
        return f"{text}: {metric.n_lower} lower now, {metric.n_higher} higher"
    return f"{text}: " + ", ".join(f"{count} {was} -> {now}" for (was, now), count in ways.most_common(6))


def said_by(metric: MetricOfTwo, row: TwoJudgements, side: Literal["before", "after"]) -> str:
    """Return what a judge said of a unit, in words."""
    value, label = (row.value, row.label) if side == "before" else (row.value_after, row.label_after)
    if metric.kind == "pairs":
        if metric.difference is None:
            return {"left": "first", "right": "second"}.get(label or "", label or "-")
        return "tie" if value == 0.5 else "candidate" if (value or 0) > 0.5 else "baseline"
    if metric.kind == "labels" or value is None:
        return label or "-"
    return NAMES[value] if metric.kind == "yes_no" else f"{value:g}"


def _verdict(record: TwoJudges, verdict: VerdictOfTwo) -> Remark:
    def said(of: Found) -> str:
        figures = estimate_text(of.difference, of.low, of.high, "", signed=True)
        if record.subjects == "pairs":
            figures = percent(of.difference, of.low, of.high)
        return f"{conclusion_text(of.conclusion, of.reason_code)} {figures}"

    text = f"{verdict.candidate} against {verdict.baseline}: {verdict.metric}: {said(verdict.before)} before, "
    changed = verdict.before.conclusion != verdict.after.conclusion
    return Remark(about="verdict", text=f"{text}{said(verdict.after)} now", is_loud=changed)


def _labels(metric: MetricOfTwo) -> Iterator[Remark]:
    if (found := metric.labels) is None:
        return
    before, after = names_of_judges(metric)
    what = "is off by" if found.is_error else "agrees on"
    shares = [figure(value, "") if found.is_error else f"{value:.1%}" for value in (found.before, found.after)]
    text = f"{metric.metric}: of {found.n} labels of people ({found.people_metric}), {before} {what} {shares[0]}, "
    loss = {True: f"{after} is worse", False: f"{after} is better", None: "no significant difference"}[found.loss]
    text += f"{after} {shares[1]}: {_change(found)}: {loss}"
    yield Remark(about="labels", text=text, is_loud=found.loss is True)


def _change(found: AgainstLabels) -> str:
    """Return the difference of two judges against people, with its interval; of shares in percentage points."""
    ends = found.difference.difference, found.difference.low, found.difference.high
    if found.is_error:
        return estimate_text(*ends, "", signed=True)
    value, low, high = (None if end is None else 100 * end for end in ends)
    return f"{estimate_text(value, low, high, 'tokens', signed=True)} points"  # with one digit, like tokens


def _cost(metric: MetricOfTwo) -> Iterator[Remark]:
    judges, saving = (metric.before, metric.after), metric.usd_saved_each
    if all(judge.calls == 0 and not judge.calls_cached for judge in judges):
        return
    texts = [each_text(judge) for judge in judges]
    text = f"{metric.metric}: a judgement cost {texts[0]} before, costs {texts[1]} now: "
    if saving is None or not metric.before.usd_each:
        why = "the saving is unknown, since no judgement of one judge has a known price"
        yield Remark(about="cost", text=f"{text}{why}")
        return
    text += f"{'saves' if saving >= 0 else 'costs more:'} {abs(saving) / metric.before.usd_each:.0%}, "
    text += f"{usd(abs(saving) * metric.after.n_judged)} USD on {metric.after.n_judged} judgements; "
    if metric.labels is not None:
        text += f"against people's labels it changes {_change(metric.labels)}"
    else:
        changed = f"{1 - (metric.share.share or 0):.1%} are judged differently"
        text += f"{changed}, and no human labels show which judge is right"
    yield Remark(about="cost", text=text)


def each_text(judge: MetricJudge) -> str:
    """Return what a judgement costs, in words."""
    if judge.usd_each is not None:
        return f"{usd(judge.usd_each)} USD"
    if judge.calls == 0:
        return "nothing (from the ledger)" if judge.calls_cached else "nothing (no calls)"
    return "an unknown amount"


def texts_of(store: Store, record: TwoJudges, flips: Sequence[TwoJudgements]) -> dict[str, Texts]:
    """Return the texts of some flips, by unit: of answers, and of pairs those of the left side."""
    if record.subjects != "answers":
        return {}
    return {texts.unit: texts for texts in texts_of_runs(store, record.before, [flip.unit for flip in flips])}


def two_judges_document(record: TwoJudges) -> dict[str, Any]:
    """Return the record as values of JSON, and in sentences."""
    return {**asdict(record), "sentences": [remark.text for remark in remarks_of(record)]}
