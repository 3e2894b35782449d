"""Fields that whatever is run has: what it may spend, how much at once, what is done about failures."""

from typing import Annotated

from pydantic import Field

from specs.connection import ConnectionSpec
from specs.gate import Adjustment

Level = Annotated[float, Field(gt=0.5, lt=1, description="The confidence level of intervals")]
Adjusted = Annotated[
    Adjustment,
    Field(description="How p-values are adjusted for looking at several; verdicts go by the adjusted ones"),
]
Connections = Annotated[
    dict[str, ConnectionSpec],
    Field(default_factory=dict, description="Connections besides openai and local"),
]
ChunkSize = Annotated[
    int | None,
    Field(ge=1, description="Items a Prefect task run takes; chosen by their number where left out"),
]
ChunkRetries = Annotated[
    int, Field(ge=0, le=10, description="How often Prefect runs a chunk again for calls that may yet succeed")
]
ChunkRetryDelay = Annotated[float, Field(ge=0, description="Seconds before the first time; each later one, twice")]
BudgetUsd = Annotated[
    float | None,
    Field(ge=0, description="Most money for the model calls of the whole run; spent, it ends incomplete"),
]
MaxCalls = Annotated[int | None, Field(ge=0, description="Most model calls that the whole run may pay for")]
BreakerWindow = Annotated[
    int,
    Field(ge=2, description="Where more than half of so many last items failed, the rest is not attempted for now"),
]
BreakerPause = Annotated[float, Field(gt=0, description="Seconds until one item is tried again then")]
RunKey = Annotated[
    str | None,
    Field(min_length=1, description="Runs with the same key are one: a second one continues the first"),
]
Fresh = Annotated[
    bool,
    Field(description="Pay for every model call anew, even where the ledger has its answer from another run"),
]
