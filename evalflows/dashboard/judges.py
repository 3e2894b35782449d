"""Pages of judges: their list, and one with its agreement, controls and biases."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from evalflows.analysis.figures import figure
from evalflows.analysis.judge_exclusions import newest_panels
from evalflows.analysis.labels import judge_standings
from evalflows.dashboard.charts import Point, domain
from evalflows.dashboard.production import captured_json
from evalflows.dashboard.rendering import Page, Query, Site, render, steady
from evalflows.reports import judges
from evalflows.specs.errors import InputError, NotFoundError
from evalflows.store.queries.labels import texts_of_traces
from evalflows.store.queries.review_items import TRACES

LABELS_IN_PAGE = 10

Plot = tuple[float | None, float | None, float | None, tuple[float, float], float | None]
"""A value with the ends of its interval, its scale, and a mark."""


@steady
def judge_page(site: Site, query: Query) -> Page:
    """Return one judge, and its agreement with people in one experiment, comparison or trace evaluation."""
    evaluator, number = query.wanted("evaluator"), query.number("page")
    versions = judges.judges_health(site.store, evaluator)
    controls, biases, subjects = judges.judge_record(site.store, evaluator)
    if not any((versions, controls, biases, subjects)):
        root = site.store.layout.root
        raise NotFoundError(f"judge {evaluator!r}: not in {root}, wanted a judge that has judged something")
    anchored = judges.anchored_runs(site.store, evaluator)
    subject = _chosen(subjects, query)
    report, problem = _report(site, subject)
    body = render(
        "judge.html",
        site,
        evaluator=evaluator,
        versions=versions,
        panels=dict.fromkeys(panel.whole_text for panel in newest_panels(site.store) if panel.metric == evaluator),
        standings=judge_standings(site.store, evaluator) if subjects else [],
        controls=controls,
        biases=biases,
        subjects=subjects,
        anchored=anchored,
        anchor_points=_anchor_points(site, anchored),
        subject=subject,
        report=report,
        problem=problem,
        plots=_plots(report) if report else {},
        disagreements=_disagreements(site, subject, number) if subject else [],
        said=said,
        subject_page=_subject_page(site, subject) if subject else None,
        answer_address=lambda row: _answer_address(site, subject, row),
        subject_address=lambda labelled: _address(site, evaluator, labelled),
        review=_review_address(site, subject, versions),
        number=number,
        last=-(-subject.n_disagreements // LABELS_IN_PAGE) if subject else 1,
        page_address=lambda page: _address(site, evaluator, subject, page=page),
    )
    return Page(title=f"Judge {evaluator}", section="judges", body=body)


def _anchor_points(site: Site, runs: Sequence[judges.AnchoredRun]) -> dict[str, list[Point]]:
    """Return the judge's mean error on its anchors in each run, by metric. A dashed line is another version of the
    judge, a thin one another model or system_fingerprint behind its name."""
    points: dict[str, list[Point]] = {}
    before: dict[str, judges.AnchoredRun] = {}
    for run in runs:
        last, error = before.get(run.metric), 2 * (run.standard_error or 0.0)
        before[run.metric] = run
        served = "" if last is None or last.served == run.served else ", answered by another model or fingerprint"
        points.setdefault(run.metric, []).append(
            Point(
                at=run.began,
                value=run.error,
                low=run.error - error,
                high=run.error + error,
                title=f"{run.began:%Y-%m-%d %H:%M}: off by {figure(run.error, run.metric, signed=True)} on {run.n} "
                f"anchors{served}{', the judge has drifted' if run.changed in ('judge', 'both') else ''}",
                kind="worse" if run.changed in ("judge", "both") else "",
                alike=(run.evaluator_version,),
                is_release=bool(served),
                href=site.links.experiment(run.owner) if run.is_experiment else None,
            )
        )
    return points


def said(value: float | None, label: str | None, is_pairs: bool) -> str | None:
    """Return a verdict as text: of yes/no and numbers the value, of pairs which answer is better."""
    if is_pairs:
        return {"left": "first better", "right": "second better"}.get(label or "", label or "tie")
    return label if value is None else {1.0: "1 (yes)", 0.0: "0 (no)"}.get(value, f"{value:g}")


def _chosen(subjects: Sequence[judges.LabelledSubject], query: Query) -> judges.LabelledSubject | None:
    """Return what the address names; by default the newest with labels."""
    wanted = {name: query.text(name) for name in ("subject_id", "metric", "people_metric", "evaluator_version")}
    for subject in subjects:
        if all(value in (None, getattr(subject, name)) for name, value in wanted.items()):
            return subject
    if any(wanted.values()):
        given = ", ".join(f"{name} {value!r}" for name, value in wanted.items() if value)
        raise InputError(f"labels: got {given}, which has no labels, wanted one of the judge's labelled experiments")
    return None


def _report(site: Site, subject: judges.LabelledSubject | None) -> tuple[judges.JudgeReport | None, str | None]:
    """Return the agreement from the labels of now, or why there is none."""
    if subject is None:
        return None, None
    try:
        return judges.current_report(site.store, subject), None
    except InputError as error:
        return None, str(error)


def _plots(report: judges.JudgeReport) -> dict[str, Plot]:
    """Return the figures that are drawn, by the name of their line."""
    observed = report.observed
    plots: dict[str, Plot] = {}
    for name, figures, field in (
        ("Cohen's kappa", observed.get("agreement"), "kappa"),
        ("Krippendorff's alpha", observed["alpha"], "alpha"),
        ("alpha among people", observed["people_alpha"], "alpha"),
    ):
        if figures:
            plots[name] = (figures[field], figures["low"], figures["high"], (-1.0, 1.0), 0.0)
    if error := observed.get("error"):
        bias = (error["bias"], error["low"], error["high"])
        plots["bias (judge minus people)"] = (*bias, domain([*bias, 0.0]), 0.0)
    return plots | _means(observed)


def _means(observed: Mapping[str, Any]) -> dict[str, Plot]:
    """Return the means by the judge, by people, and prediction-powered, on one scale."""
    if "powered_mean" not in observed:
        return {}
    means = {"judge only": observed["judge_mean"], "labels only": observed["labels_mean"]}
    if observed["no_powered_mean"] is None:
        means["prediction-powered"] = observed["powered_mean"]
    scale = domain([mean[end] for mean in means.values() for end in ("mean", "low", "high")])
    return {name: (mean["mean"], mean["low"], mean["high"], scale, None) for name, mean in means.items()}


def _address(site: Site, evaluator: str, subject: judges.LabelledSubject | None, page: int | None = None) -> str | None:
    if subject is None:
        return None
    fields = ("subject_id", "metric", "people_metric", "evaluator_version")
    address = site.links.judge(evaluator, **{name: getattr(subject, name) for name in fields}, page=page)
    return f"{address}#{'disagreements' if page else 'people'}" if address else None


def _disagreements(site: Site, subject: judges.LabelledSubject, page: int) -> Sequence[judges.Disagreement]:
    """Return a page of the labels that disagree with the judge, with the texts of traces."""
    rows = judges.disagreements(site.store, subject, page=page, in_page=LABELS_IN_PAGE)
    if subject.subjects != "items" or not rows:
        return rows
    texts = texts_of_traces(site.store, [row.subject_id for row in rows])
    return [
        replace(row, inputs=captured_json(known.inputs), outputs=captured_json(known.outputs))
        if (known := texts.get(row.subject_id))
        else row
        for row in rows
    ]


def _subject_page(site: Site, subject: judges.LabelledSubject) -> str | None:
    """Return the page of what was judged. Feedback that came with traces has none: it is of no evaluation."""
    if subject.subjects == "items":
        return None if subject.name == subject.subject_id else site.links.evaluation(subject.name)
    return site.links.comparison(subject.subject_id) if subject.is_pairs else site.links.experiment(subject.subject_id)


def _answer_address(site: Site, subject: judges.LabelledSubject | None, row: judges.Disagreement) -> str | None:
    if subject is None:
        return None
    if subject.is_pairs:
        runs = {"metric": subject.metric, "left": row.subject_id, "right": row.other_run_id}
        return site.links.page("pairwise", subject.subject_id, "pair", **runs)
    if row.example_id is not None:
        return site.links.example(subject.subject_id, row.example_id, row.repetition)
    trace, _, observation = row.subject_id.partition("/")
    return site.links.trace(trace) if observation or row.outputs is not None else None  # else a session


def _review_address(
    site: Site, subject: judges.LabelledSubject | None, versions: Sequence[judges.JudgeHealth]
) -> str | None:
    """Return where people label what narrows the interval most."""
    if subject is not None:
        reviewed = TRACES if subject.subjects == "items" else subject.subject_id
        return site.links.page("review", subject=reviewed, metric=subject.people_metric)
    return site.links.page("review", metric=versions[0].metrics[0]) if versions and versions[0].metrics else None


@steady
def judges_page(site: Site, query: Query) -> Page:
    """Return the list of judges, those that need action first, and their agreement with people."""
    text = query.text("q")
    health = [
        row for row in judges.judges_health(site.store) if _has(text, row.evaluator, row.judge_model, *row.metrics)
    ]
    standings = [row for row in judge_standings(site.store) if _has(text, row.evaluator, row.judge_model, row.metric)]
    panels = dict.fromkeys(panel.text for panel in newest_panels(site.store) if _has(text, panel.metric))
    body = render(
        "judges.html",
        site,
        judges=judges.judges_by_need(site.store, health),
        standings=standings,
        panels=panels,
        q=text,
    )
    return Page(title="Judges", section="judges", body=body)


def _has(text: str | None, *names: str) -> bool:
    return text is None or any(text.lower() in name.lower() for name in names)
