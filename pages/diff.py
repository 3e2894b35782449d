"""A diff as a page of a report: figures, what else differs, and the examples that changed most."""

from evalflows.pages.compare_tables import counted, metric_tables
from evalflows.pages.page import Page, Site
from evalflows.pages.rendering import render
from evalflows.reports.diff import ExperimentsDiff
from evalflows.reports.diff_texts import answers_apart, heading, no_examples, remarks, values_text
from evalflows.reports.failed_judges import failed_metrics


def diff_page(site: Site, diff: ExperimentsDiff) -> Page:
    """Return the page of a diff with the examples of its lists."""
    body = render(
        "diff.html",
        site,
        diff=diff,
        tables=metric_tables(diff),
        failed=failed_metrics(site.store, diff.run_groups),
        counted=counted,
        heading=heading,
        no_examples=no_examples,
        values_text=values_text,
        answers_apart=answers_apart,
        remarks=remarks,
    )
    names = ", ".join(diff.names[one.experiment_id] for one in diff.candidates)
    title = f"{names} against {diff.names[diff.baseline.experiment_id]}"
    return Page(title=title, section="compare", body=body)
