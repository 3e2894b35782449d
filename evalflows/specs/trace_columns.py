"""From which columns of a table traces are made."""

from pydantic import BaseModel, ConfigDict, Field


class TraceColumns(BaseModel):
    """Which columns an observation is made from. A column may be a path into nested objects, such as `data.question`.

    A field that is not named here comes from the column of its own name, if there is one; columns that nothing names
    become metadata.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: str | None = Field(None, description="What the application was asked")
    output: str | None = Field(None, description="What it answered")
    started_at: str | None = Field(None, description="When it began: ISO 8601, or a number since 1970")
    ended_at: str | None = Field(None, description="When it ended")
    latency_s: str | None = Field(None, description="How long it took, instead of `ended_at`")
    trace_id: str | None = Field(None, description="Its trace; default: an id made of the row")
    span_id: str | None = Field(None, description="Its id within the trace; default: an id made of the row")
    parent_id: str | None = Field(None, description="The id of the observation that it is a part of")
    name: str | None = Field(None, description="Its name; default: `row`")
    type: str | None = Field(None, description="generation, tool, agent, …; default: generation with model or tokens")
    status: str | None = Field(None, description="ok or error")
    error: str | None = Field(None, description="The error's text; an error if there is one")
    session_id: str | None = Field(None, description="The session or conversation")
    user_id: str | None = Field(None, description="The user")
    tags: str | None = Field(None, description="A list, or text with commas between the tags")
    model: str | None = Field(None, description="The model")
    provider: str | None = Field(None, description="The model's provider")
    tokens_in: str | None = Field(None, description="Tokens of the request")
    tokens_out: str | None = Field(None, description="Tokens of the answer")
    cost_usd: str | None = Field(None, description="Cost in USD")
    version: str | None = Field(None, description="The application's version")
    environment: str | None = Field(None, description="Such as production")
    service: str | None = Field(None, description="The application's name")
    metadata: str | None = Field(None, description="An object; columns that nothing names are added to it")
