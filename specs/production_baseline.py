"""A window of production as the baseline of a gate: `production:EVALUATION@24h`."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

PREFIX = "production:"
FORM = "production:EVALUATION@24h, @7d or @2026-11-01..2026-11-08, and [version=1.4] for one version"

_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
_TEXT = re.compile(r"production:(?P<evaluation>.+)@(?P<window>[^@\[\]]+?)(?:\[version=(?P<version>[^\[\]]+)\])?")
LONGEST = timedelta(days=3660)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductionBaseline:
    """The scores that a trace evaluation has given to the items that began in a window."""

    evaluation: str
    since: datetime | None = None  # None: a duration before now, which is fixed before a run starts
    until: datetime | None = None  # excluded
    last: timedelta | None = None
    version: str | None = None  # of the application; None for all

    def fixed(self, now: datetime) -> "ProductionBaseline":
        """Return the window with its ends; one that has them already is unchanged."""
        if self.last is None:
            return self
        until = now.astimezone(UTC).replace(microsecond=0)
        return ProductionBaseline(
            evaluation=self.evaluation, since=until - self.last, until=until, version=self.version
        )

    @property
    def text(self) -> str:
        """The window of a fixed baseline, as `baseline` takes it."""
        window = "" if self.since is None or self.until is None else f"{_stamp(self.since)}..{_stamp(self.until)}"
        return f"{PREFIX}{self.evaluation}@{window}{f'[version={self.version}]' if self.version else ''}"


def _stamp(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def production_baseline(text: str) -> ProductionBaseline:
    """Return the window that a text such as `production:support@24h` means. Raise ValueError for another text."""
    found = _TEXT.fullmatch(text)
    if found is None:
        raise ValueError(f"got {text!r}, wanted {FORM}")
    evaluation, version = found["evaluation"], found["version"]
    if duration := re.fullmatch(r"(\d{1,6})([mhdw])", found["window"]):
        last = int(duration[1]) * _UNITS[duration[2]]
        if not timedelta(0) < last <= LONGEST:
            raise ValueError(f"got the window {found['window']}, wanted one of at most {LONGEST.days} days")
        return ProductionBaseline(evaluation=evaluation, last=last, version=version)
    ends = [_moment(end, text) for end in found["window"].split("..")]
    if len(ends) != 2:
        raise ValueError(f"got {text!r}, wanted {FORM}")
    if ends[0] >= ends[1]:
        raise ValueError(f"got {text!r}, wanted a window that ends after it begins")
    return ProductionBaseline(evaluation=evaluation, since=ends[0], until=ends[1], version=version)


def _moment(text: str, whole: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"got {whole!r}, wanted {FORM}") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
