"""Failure modes: how often each holds now, against the baseline and over time, and its newest members."""

from pathlib import Path

from evalflows.dashboard.rendering import Page, Query, Site, render
from evalflows.reports.modes import modes_of
from evalflows.specs.errors import InputError
from evalflows.specs.failure_modes import ModeSpec, load_taxonomy


def modes_page(site: Site, query: Query) -> Page:
    """The failure modes of one system, and those of production.

    Which are closed only the team's file says, where the dashboard was started.
    """
    found = modes_of(site.store, query.text("name"))
    body = render("modes.html", site, found=found, reviewed=_reviewed())
    return Page(title="Failure modes", section="modes", body=body, is_of_store=False)


def _reviewed() -> dict[str, ModeSpec]:
    try:
        found = load_taxonomy("failure_modes.yaml").modes if Path("failure_modes.yaml").is_file() else []
    except InputError:  # somebody is editing it
        found = []
    return {mode.name: mode for mode in found}
