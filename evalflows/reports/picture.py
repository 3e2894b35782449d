"""A result as a picture for a chat or a ticket: the verdict, a sentence, and each metric's interval.

Drawn by Pillow, an extra, in the light colours of the dashboard's pages.
"""

import io
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, cast

from evalflows.analysis.figures import figure
from evalflows.reports.comparison import comparison_report
from evalflows.reports.decisions import Decision, with_limits
from evalflows.reports.markdown_pages import Reported, ReportedComparison, ReportedDecision
from evalflows.reports.results import Result, means_in, results_against
from evalflows.specs.errors import InputError
from evalflows.specs.escaping import one_line
from evalflows.specs.frozen import dataclass
from evalflows.specs.metric_names import MEASURES, metric_of

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont

WIDTH, HEIGHT, EDGE = 1200, 630, 48
"""In pixels; the size that chats show of a link."""

MOST_ROWS = 5

FONTS = ("DejaVuSans.ttf", "Arial Unicode.ttf", "arial.ttf")
"""Fonts of the machine with more scripts than Pillow's own, which has Latin letters only."""

INK, QUIET, LINE, CALM = "#1b1f26", "#596170", "#d5d9df", "#3d4656"
COLOURS = {
    "better": "#11683a",
    "PASS": "#11683a",
    "worse": "#a81c1c",
    "FAIL": "#a81c1c",
    "NOT ENOUGH EVIDENCE": "#7a4b00",
    "not_enough_evidence": "#7a4b00",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A metric: its interval on a line of its own."""

    name: str
    before: str  # the baseline's mean, in words; empty without a baseline
    value: str
    middle: float | None
    middle_text: str
    low: float | None
    high: float | None
    mark: float | None  # the value of no difference; None if nothing is compared
    conclusion: str | None
    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What a picture shows."""

    verdict: str | None  # the headline
    title: str
    sentences: Sequence[str]
    rows: Sequence[Row]


def card_of(what: Reported) -> Card:
    """Return the card of what `evalflows report` was asked about."""
    if isinstance(what, ReportedComparison):
        return _of_comparison(what)
    if isinstance(what, ReportedDecision):
        return _of_decision(what, what.decision)
    if len(what.decisions) == 1:
        return _of_decision(what, what.decisions[0])
    report = what.report
    title = ", ".join(experiment.name for experiment in report.experiments)
    return card_of_results(title, report.results, report.sentences)


def card_of_results(
    title: str, results: Sequence[Result], sentences: Sequence[str], verdict: str | None = None
) -> Card:
    """Return the card of experiments, or of candidates against a baseline."""
    return Card(verdict=verdict, title=title, sentences=sentences, rows=_rows(results))


def _of_decision(what: Reported, decision: Decision) -> Card:
    (decision,) = with_limits(what.store, [decision])
    baseline, candidate = decision.baseline_experiment_id, decision.candidate_experiment_id
    rows = _rows(results_against(what.store, candidate, baseline, [decision.decision_id]))
    order = ("broken", "open", "met", None)
    rules = sorted(decision.rules, key=lambda rule: order.index(rule.outcome), reverse=True)  # the worst one counts
    outcomes = {metric_of(rule.metric): rule.outcome for rule in rules}
    rows.sort(key=lambda row: order.index(outcomes.get(row.name)))
    title = f"{decision.title[0].upper()}{decision.title[1:]}"
    said = [decision.summary, *decision.where, *decision.what_limits]
    return Card(verdict=decision.conclusion, title=title, sentences=said, rows=rows)


def _of_comparison(what: ReportedComparison) -> Card:
    report = comparison_report(what.store, what.identity)
    rows = [
        Row(
            name=f"{rate.candidate} against {rate.baseline}: {rate.metric}",
            before="",
            value=rate.rate_text.partition(" ")[0],
            middle=rate.win_rate,
            middle_text="",
            low=rate.win_rate_low,
            high=rate.win_rate_high,
            mark=0.5,
            conclusion=rate.conclusion,
            verdict=rate.verdict_text,
        )
        for rate in report.win_rates
        if rate.is_overall
    ]
    return Card(verdict=None, title=report.overview.name, sentences=["Win rates, with ties as a half"], rows=rows)


def _rows(results: Sequence[Result]) -> list[Row]:
    means = means_in(results)
    compared = any(result.baseline_experiment_id for result in results)
    several = len({result.experiment_id for result in results if result.baseline_experiment_id or not compared}) > 1
    return [
        Row(
            name=f"{result.metric} of {result.target}" if several else result.metric,
            before=of_both.baseline if (of_both := means[result.experiment_id, result.metric]) else "",
            value=of_both.candidate if of_both else result.mean_text,
            middle=result.difference if compared else result.mean,
            middle_text=figure(result.difference, result.metric, signed=True) if compared else "",
            low=result.difference_low if compared else result.ci_low,
            high=result.difference_high if compared else result.ci_high,
            mark=0.0 if compared else None,
            conclusion=result.conclusion,
            verdict=result.verdict_text,
        )
        for result in sorted(results, key=lambda result: result.metric in MEASURES)
        if result.is_worth_showing and (result.baseline_experiment_id or not compared)
    ]


def picture(card: Card, made: datetime) -> bytes:
    """Return the card as PNG. Raise InputError without Pillow."""
    try:
        from PIL import Image, ImageDraw  # late: an extra
    except ImportError as error:
        raise InputError("a picture: got no package pillow, wanted `pip install 'evalflows[png]'`") from error

    image = Image.new("RGB", (WIDTH, HEIGHT), "white")
    draw = ImageDraw.Draw(image)
    y = EDGE - 8
    if card.verdict:
        draw.rectangle((0, 0, WIDTH, 10), fill=COLOURS.get(card.verdict, CALM))
        draw.text((EDGE, y), card.verdict, COLOURS.get(card.verdict, CALM), _font(38))
        y += 54
    for line in _lines(card.title, _font(30), WIDTH - 2 * EDGE, 2):
        draw.text((EDGE, y), line, INK, _font(30))
        y += 40
    room = 4 if card.verdict is None else 3
    for sentence in card.sentences:
        for line in _lines(sentence, _font(20), WIDTH - 2 * EDGE, room):
            draw.text((EDGE, y), line, QUIET, _font(20))
            y, room = y + 28, room - 1
        if room <= 0:
            break
    shown = card.rows[: min(MOST_ROWS, (HEIGHT - 100 - y) // 58)]
    if any(row.mark == 0.0 for row in shown):
        draw.text((730, y + 16), "difference and its interval", QUIET, _font(14), anchor="mm")
    for row in shown:
        y += 58
        _draw_row(draw, row, y)
    left = len(card.rows) - len(shown)
    foot = f"evalflows · {made.astimezone(UTC):%Y-%m-%d %H:%M} UTC" + (f" · {left} more metrics" if left else "")
    draw.text((EDGE, HEIGHT - 40), foot, QUIET, _font(16))
    out = io.BytesIO()
    image.save(out, "PNG", optimize=True)
    return out.getvalue()


def _draw_row(draw: "ImageDraw", row: Row, y: int) -> None:
    """Draw a row around the height `y`: name, means, the interval between its ends, verdict."""
    colour = COLOURS.get(row.conclusion or "", CALM)
    draw.line((EDGE, y - 28, WIDTH - EDGE, y - 28), LINE)
    draw.text((EDGE, y), next(_lines(row.name, _font(20), 300, 1), ""), INK, _font(20), anchor="lm")
    means = " to ".join(filter(None, (row.before, row.value)))
    draw.text((570, y), next(_lines(means, _font(20), 210, 1), ""), INK, _font(20), anchor="rm")
    draw.text((WIDTH - EDGE, y), next(_lines(row.verdict, _font(18), 250, 1), ""), colour, _font(18), anchor="rm")
    if row.middle is None:
        return
    ends = [row.middle if end is None else end for end in (row.low, row.high)]
    centre = row.middle if row.mark is None else row.mark
    reach = max(abs(value - centre) for value in (row.middle, *ends)) * 1.25 or 1.0

    def x(value: float) -> float:
        return 730 + 130 * (value - centre) / reach

    draw.line((600, y, 860, y), LINE)
    if row.mark is not None:
        draw.line((x(row.mark), y - 18, x(row.mark), y + 18), QUIET)
    if row.low is not None or row.high is not None:
        draw.line((x(ends[0]), y, x(ends[1]), y), colour, 5)
    draw.ellipse((x(row.middle) - 7, y - 7, x(row.middle) + 7, y + 7), colour)
    draw.text((x(row.middle), y - 19), row.middle_text, colour, _font(14), anchor="mm")


@cache
def _font(size: int) -> "FreeTypeFont":
    from PIL import ImageFont

    for name in FONTS:
        with suppress(OSError):
            return ImageFont.truetype(name, size)
    return cast("FreeTypeFont", ImageFont.load_default(size))


def _lines(text: str, font: "FreeTypeFont", width: int, most: int) -> Iterator[str]:
    """Yield the lines of a text that are at most so wide; the last one ends with `…` if words are left."""
    words = one_line(text).split()
    for number in range(most):
        line = ""
        while words and font.getlength(f"{line} {words[0]}".strip()) <= width:
            line = f"{line} {words.pop(0)}".strip()
        if words and (number == most - 1 or not line):
            line = f"{line} {words.pop(0)}".strip()
            while line and font.getlength(f"{line}…") > width:
                line = line[:-1]
            line, words = f"{line}…", words if number < most - 1 else []
        if line:
            yield line
