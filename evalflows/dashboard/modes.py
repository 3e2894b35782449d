"""Failure modes: how often each holds now, against the baseline, over time, by version and by slice, and its members;
and the team's file of them, which these pages edit."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from difflib import unified_diff
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from evalflows.analysis.label_shares import LabelShare, label_shares
from evalflows.dashboard.charts import Place, Point
from evalflows.dashboard.links import Links
from evalflows.dashboard.production import asked_and_answered
from evalflows.dashboard.rendering import Page, Query, Site, render
from evalflows.reports.modes import Member, ModeHistory, ModeRate, map_members, members_of, mode_history, modes_of
from evalflows.specs import failure_modes
from evalflows.specs.errors import InputError, NotFoundError
from evalflows.specs.failure_modes import PREFIX
from evalflows.specs.files import read_text
from evalflows.specs.frozen import dataclass
from evalflows.store.layout import quoted
from evalflows.store.queries.failures import AnswerTexts
from evalflows.store.store import Store

FILE = Path("failure_modes.yaml")
"""The file that is shown and edited, where the dashboard was started."""

COLOURS = 8
IN_PAGE = 50
"""Members of a mode on a page."""
IN_CHART = 5
"""Labels in a chart, the most frequent."""
IN_TITLE = 300
"""Characters of a comment in a point's title."""

Doing = Literal["rename", "merge", "split", "confirm", "close", "reopen"]
DOINGS: Sequence[Doing] = ("rename", "merge", "split", "confirm", "close", "reopen")


def modes_page(site: Site, query: Query) -> Page:
    """Return the failure modes of one system, and those of production.

    Which are closed only the team's file says, where the dashboard was started.
    """
    found, reviewed = modes_of(site.store, query.text("name")), _reviewed()
    given = {line.mode for of in found.found for line in of.lines}
    others = [mode for name, mode in reviewed.items() if name not in given]
    topics = [
        _topics(metric, [*shares]) for metric, shares in groupby(label_shares(site.store), lambda share: share.metric)
    ]
    body = render(
        "modes.html", site, found=found, reviewed=reviewed, others=others, file=FILE.name, topics=topics, said=_said
    )
    return Page(title="Failure modes", section="modes", body=body, is_of_store=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Topics:
    """The labels of one metric in production."""

    metric: str
    points: Sequence[Point]  # of the most frequent
    newest: Sequence[LabelShare]  # of each label, the most frequent first


def _topics(metric: str, shares: Sequence[LabelShare]) -> _Topics:
    labels = [*dict.fromkeys(share.label for share in shares)]
    points = [
        Point(
            at=share.day,
            value=share.share,
            low=share.low,
            high=share.high,
            title=f"{share.label}, {share.day:%Y-%m-%d}: {share.in_percent[0]} of {share.n}",
            series=labels.index(share.label),
        )
        for share in shares
        if share.label in labels[:IN_CHART]
    ]
    newest = {share.label: share for share in shares}
    return _Topics(metric=metric, points=points, newest=[*newest.values()])


def modes_map_page(site: Site, query: Query) -> Page:
    """Return the answers of a system's newest run that have a mode, alike ones near each other; computed when asked
    for.

    Modes beyond the most frequent share a colour. Raise InputError if the local embedding model is not installed.
    """
    from evalflows.analysis.modes import map_of  # late: it is slow to import

    system = modes_of(site.store, query.text("name")).system
    experiment = (system and system.experiment_id) or ""
    members = map_members(site.store, experiment)
    counts = Counter(member.mode for member in members).most_common()
    colours = {mode: min(number, COLOURS - 1) for number, (mode, _) in enumerate(counts)}
    places = [
        Place(
            x=x,
            y=y,
            title=f"{member.mode}: {member.comment[:IN_TITLE]}",
            series=colours[member.mode],
            href=site.links.example(experiment, member.example_id),
        )
        for member, (x, y) in zip(
            members, map_of([member.comment for member in members]) if members else (), strict=True
        )
    ]
    legend = [(min(number, COLOURS - 1), mode, count) for number, (mode, count) in enumerate(counts)]
    body = render("modes_map.html", site, places=places, legend=legend)
    return Page(title=f"Map of the failures of {system.name if system else 'no system'}", section="modes", body=body)


def mode_page(site: Site, query: Query) -> Page:
    """Return one mode of a system or of production: its rate over time, by version and by slice, and all its members.

    Of a mode of the team's file also what can be done to it, and what that changes in the file before it is written. A
    change of a file that was `seen` in another version is not shown, but said to be late.

    Raise InputError for a change that makes the file invalid, and NotFoundError for an unknown mode.
    """
    name, number = query.wanted("mode"), query.number("page")
    history = mode_history(site.store, name, query.text("name"))
    text = read_text(FILE) if FILE.is_file() else None
    try:
        taxonomy = failure_modes.taxonomy_of(text, FILE.name) if text is not None else None
    except InputError:  # somebody is editing it
        if history is None or query.text("do"):
            raise
        taxonomy = None
    known = taxonomy.names if taxonomy else []
    if history is None and name not in known:
        raise NotFoundError(f"no failure mode {name!r}, wanted one of {', '.join(known) or 'those of the store'}")
    version = failure_modes.version_of(text or "")
    is_late = query.text("seen") not in (None, version)
    only = query.text("in")
    if only and (history is None or only not in history.owners):
        raise NotFoundError(f"in: got {only!r}, wanted a run of {history.name if history else 'a system'} with {name}")
    members, n_members, texts = (
        members_of(site.store, history, only, IN_PAGE, (number - 1) * IN_PAGE) if history else ([], 0, {})
    )
    body = render(
        "mode.html",
        site,
        name=name,
        history=history,
        points=_points(history) if history else (),
        released=_released(history) if history else (),
        version_of={rate.owner: rate.name for rate in history.over_time} if history else {},
        version_address=partial(_version_address, site, history) if history else None,
        page_address=lambda page: site.links.page("modes", name, name=query.text("name"), **{"in": only}, page=page),
        members=members,
        n_members=n_members,
        texts=texts,
        said=_said,
        only=only,
        number=number,
        last=max(1, -(-n_members // IN_PAGE)),
        mode=taxonomy.mode(name) if taxonomy and name in known else None,
        others=[other for other in known if other != name],
        seen=version,
        is_late=is_late,
        preview=_preview(query, text or "") if query.text("do") and not is_late else None,
        query=query,
        file=FILE.name,
    )
    return Page(title=f"Failure mode {name}", section="modes", body=body, is_of_store=False)


def _points(history: ModeHistory) -> list[Point]:
    return [
        Point(
            at=rate.at,
            value=rate.rate,
            low=rate.low,
            high=rate.high,
            title=f"{rate.name} {rate.at:%Y-%m-%d}: {rate.n_with} of {rate.n}, {' '.join(rate.in_percent)}",
        )
        for rate in history.over_time
        if rate.at
    ]


def _released(history: ModeHistory) -> list[tuple[datetime, str]]:
    """Return when each version of a system was first seen."""
    first: dict[str, datetime] = {}
    for rate in history.over_time if history.experiment_id else ():
        if rate.at:
            first.setdefault(rate.name, rate.at)
    return [(at, name) for name, at in first.items() if name]


def _version_address(site: Site, history: ModeHistory, rate: ModeRate) -> str | None:
    """Return where the members of a version are: those of a run on this page, those of production among the traces."""
    if history.experiment_id:
        return site.links.page("modes", history.mode, name=history.name, **{"in": rate.owner})
    scored = f"select trace_id from trace_scores where metric = {quoted(PREFIX + history.mode)} and value > 0"
    return site.links.traces(f"version = {quoted(rate.name)} and trace_id in ({scored})")


def _said(member: Member, texts: Mapping[str, AnswerTexts]) -> tuple[str, str]:
    """Return what was asked and what was answered; empty of a session."""
    text = texts.get(member.source)
    return asked_and_answered(text.inputs, text.outputs) if text else ("", "")


def take_mode(store: Store, query: Query, texts: dict[str, str]) -> dict[str, Any]:
    """Write a change that was shown into the team's file. Raise ChangedError if the file is another one by now."""
    failure_modes.edit(FILE, _change(query), texts.get("seen", ""))
    return {"location": Links().page("modes")}


def _preview(query: Query, before: str) -> Sequence[tuple[str, str]]:
    """Return the lines of the file that a change is about, and whether each is removed, added or the same."""
    after = failure_modes.edited(before, _change(query), FILE.name)
    lines = unified_diff(before.splitlines(), after.splitlines(), n=3, lineterm="")
    kinds = {"-": "removed", "+": "added"}
    return [(kinds.get(line[0], "same"), line) for line in [*lines][2:]]  # without the names of the files


def _change(query: Query) -> failure_modes.Change:
    """Return the change that an address asks for. Raise InputError for a field that it lacks."""
    mode, today = query.wanted("mode"), datetime.now(UTC).date()
    match query.choice("do", DOINGS, "confirm"):
        case "rename":
            return failure_modes.renamed(mode, query.wanted("to"), _sentence(query))
        case "merge":
            return failure_modes.merged(mode, query.wanted("into"))
        case "split":
            examples = query.all("example")
            if not all(example.isascii() and example.isdigit() for example in examples):
                raise InputError(f"example: got {', '.join(examples)}, wanted numbers")
            return failure_modes.split(mode, query.wanted("to"), _sentence(query), [*map(int, examples)])
        case "close":
            return failure_modes.with_status(mode, "closed", today)
        case "confirm" | "reopen":
            return failure_modes.with_status(mode, "open", today)


def _sentence(query: Query) -> str:
    return " ".join(query.wanted("definition").split())


def _reviewed() -> dict[str, failure_modes.ModeSpec]:
    try:
        found = failure_modes.load_taxonomy(FILE).modes if FILE.is_file() else []
    except InputError:  # somebody is editing it
        found = []
    return {mode.name: mode for mode in found}
