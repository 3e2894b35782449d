"""Scores of panels: who of their judges counts, and how much, and the score of each answer from the scores of these."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from evalflows.engine.results import Columns, EvaluationResult
from evalflows.evaluators.panel import panel_verdict
from evalflows.specs.frozen import dataclass
from evalflows.specs.metrics import CompositeSpec
from evalflows.store.queries.people_checks import PeopleAlphas
from evalflows.store.records import JudgementRow, OutputRow, to_json
from evalflows.store.schemas import records_of

MIN_LABELS = 20
"""The fewest labelled answers of each judge by which the judges of a panel are weighted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seats:
    """Who of a panel's judges counts, by their metrics."""

    counted: Sequence[str]
    left_out: Mapping[str, str]  # with the reason
    weights: Mapping[str, float] = field(default_factory=dict)  # empty: all count equally
    note: str | None = None  # why they do, where weights are wanted


def seats_of(
    panel: CompositeSpec,
    versions: Mapping[str, str],
    left_out: Mapping[str, str],
    alphas: PeopleAlphas,
) -> Seats:
    """Return who of a panel counts. If none should, all do, and the panel's own score decides nothing.

    `versions` are those of the judges, and `alphas` what the newest `labels agreement` found of each. With
    `combine: weighted`, a judge's weight is max(0, alpha): its agreement with people beyond chance, by Krippendorff's
    alpha (0 at chance, 1 if they always agree). Of judges who err independently, the log-odds
    log(p / (1 - p)) of being right are the best weights (Nitzan & Paroush 1982, International Economic Review 23);
    near p = 1/2 these are proportional to 2p - 1, which is agreement beyond chance on balanced yes and no. Unlike
    log-odds, it is bounded: a judge that happens to agree on all of few labels does not outvote all others.
    """
    left_out = {metric: why for metric, why in left_out.items() if metric in panel.panel}
    counted = [metric for metric in panel.panel if metric not in left_out] or panel.panel
    if panel.combine != "weighted":
        return Seats(counted=counted, left_out=left_out)
    found = {metric: alphas.get((versions.get(metric, ""), metric)) for metric in counted}
    few = [short_name(m, panel.name) for m, known in found.items() if known is None or known.n_labelled < MIN_LABELS]
    weights = {metric: max(0.0, known.alpha or 0.0) for metric, known in found.items() if known is not None}
    note = None
    if few:
        note = f"all count equally, with fewer than {MIN_LABELS} labels of {', '.join(few)} (labels agreement)"
    elif not any(weights.values()):
        note = "all count equally, since none agrees with people better than by chance"
    return Seats(counted=counted, left_out=left_out, weights={} if note else weights, note=note)


def short_name(metric: str, panel: str) -> str:
    """Return the name of a judge within its panel."""
    return metric.removeprefix(f"{panel}/")


def panel_rows(
    panel: CompositeSpec,
    seats: Seats,
    outputs: Sequence[OutputRow],
    of_run: Mapping[str, Sequence[JudgementRow]],
    columns: Callable[..., Columns],
) -> list[JudgementRow]:
    """Return the rows of a panel's scores, of all answers that a judge has seen; `columns` makes their columns as
    `run_scores` does."""
    of_judges = [
        {row.metric: row for row in of_run[output.run_id] if row.turn is None and row.metric in panel.panel}
        for output in outputs
    ]
    seen = [(output, rows) for output, rows in zip(outputs, of_judges, strict=True) if rows]
    if not seen:
        return []
    results = [_result(panel, seats, rows) for _, rows in seen]
    rates = [next(iter(rows.values())).sampling_rate for _, rows in seen]  # all judges have the same sample
    made = columns([output for output, _ in seen], results, evaluator=panel.name, sampling_rates=rates)
    return records_of("judgements", made, len(results))


def _result(panel: CompositeSpec, seats: Seats, rows: Mapping[str, JudgementRow]) -> EvaluationResult:
    """Return the score of one answer: that of the judges who count and gave one, if these are at least half."""
    scored = [metric for metric in seats.counted if metric in rows and rows[metric].status == "scored"]
    others = [rows[metric] for metric in seats.counted if metric in rows and metric not in scored]
    names = {metric: short_name(metric, panel.name) for metric in panel.panel}
    weights = {names[metric]: weight for metric, weight in seats.weights.items()}
    about = {
        "verdicts": {names[m]: row.value if row.label is None else row.label for m, row in rows.items()},
        "left_out": {names[metric]: why for metric, why in seats.left_out.items()},
        **({"weights": weights} if weights else {}),
        **({"note": seats.note} if seats.note else {}),
    }
    made = EvaluationResult(
        metric=panel.name,
        status="failed",
        metadata=to_json(about),
        judge_model=", ".join(names[metric] for metric in seats.counted),
        attempts=0,
    )
    if not scored and len({row.status for row in others}) == 1 and others[0].status != "failed":
        return made._replace(status=others[0].status, error=others[0].error)
    if not scored and all(row.error_kind == "no_output" for row in others):
        return made._replace(error=others[0].error, error_kind="no_output")
    if not scored or 2 * len(scored) < len(seats.counted):
        first = next((row for row in others if row.error), None)
        why = f": {names[first.metric]}: {first.error}" if first else ""
        error = f"{len(scored)} of {len(seats.counted)} judges gave a score, wanted at least half{why}"
        return made._replace(error=error)
    verdicts = [rows[metric] for metric in scored]
    weighted = [seats.weights.get(metric, 0.0) if seats.weights else 1.0 for metric in scored]
    try:
        said = panel_verdict(verdicts, panel.combine, weighted if any(weighted) else [1.0] * len(scored))
    except ValueError as error:
        return made._replace(error=str(error))
    return made._replace(
        status="scored",
        value=said.value,
        label=said.label,
        data_type=said.data_type,
        spread=said.spread,
        agreement=said.agreement,
        repeats=len(scored),
        decided_by=", ".join(names[metric] for metric in scored),
        comment=verdicts[said.nearest].comment,
    )
