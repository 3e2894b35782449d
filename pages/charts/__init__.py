"""Charts as SVG, drawn on the server: no script, no style attribute, colours by class."""

from evalflows.pages.charts.bars import histogram, share_bar
from evalflows.pages.charts.svg import domain
from evalflows.pages.charts.timeline import Point, line_sample, sparkline, timeline
from evalflows.pages.charts.whisker import whisker

__all__ = ["Point", "domain", "histogram", "line_sample", "share_bar", "sparkline", "timeline", "whisker"]
