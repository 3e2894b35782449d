"""What was read from production: observations, the feedback that came with them, and what was wrong with the rest."""

from dataclasses import dataclass, field

from evalflows.store.records import LabelRow, ScoreRow
from evalflows.store.trace_records import ObservationRow


@dataclass(slots=True, kw_only=True)
class Telemetry:
    """The rows of one request, or of one record of a file."""

    observations: list[ObservationRow] = field(default_factory=list)
    scores: list[ScoreRow] = field(default_factory=list)  # from evaluators
    labels: list[LabelRow] = field(default_factory=list)  # from people
    rejected: list[str] = field(default_factory=list)  # one line per span or log record that is invalid
    ignored: int = 0  # log records that are about no trace, or no GenAI events; feedback that points at nothing
