"""What any harness's file of results says: the answers of systems to examples, with scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRow:
    """A system's answer to an example, one of its repetitions."""

    example_id: str
    repetition: int = 0
    inputs: Any = None  # as the file has them; None if it does not
    reference: Any = None
    output: Any = None
    fields: Mapping[str, Any] = field(default_factory=dict)  # what clusters and slices can name
    scores: Mapping[str, float | None] = field(default_factory=dict)  # by metric; None if it is missing
    error: str | None = None  # why scores are missing


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemResults:
    """What a file says of one system."""

    source: str  # the file, as it was given
    format: str  # its name for people, such as "promptfoo"
    system: str  # a provider, a model, a run; empty if the file does not say it
    rows: Sequence[ResultRow]
    unfinished: str | None = None  # why the run that wrote it did not finish

    @property
    def metrics(self) -> Sequence[str]:
        return [*dict.fromkeys(name for row in self.rows for name in row.scores)]
