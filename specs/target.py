"""A target: the system under test, inputs -> outputs."""

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

from specs.columns import AnswerColumns


class _Target(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field("target", description="What this variant is called in results", min_length=1)


class ChatTarget(_Target):
    """One chat completion for each example."""

    kind: Literal["chat"]
    connection: str = Field("openai", description="The connection's name")
    model: str | None = Field(None, description="The model; the connection's own where left out")
    system: str | None = Field(None, description="System message; {field} is filled from the inputs")
    messages: str | None = Field(
        None, description="The field of the inputs that holds a conversation: messages of {role, content}"
    )
    user: str | None = Field(
        None,
        description="User message; left out, the conversation stands alone, or the only field of the inputs is sent",
    )
    temperature: float | None = Field(None, ge=0)
    max_tokens: int | None = Field(None, ge=1, description="Most tokens of an answer")
    seed: int | None = None
    tools: list[dict[str, Any]] | None = Field(None, description="Tools that the model may call, as OpenAI has them")
    response_schema: dict[str, Any] | None = Field(
        None, description="A JSON schema of the answer, whose fields are the outputs then"
    )
    extra: dict[str, Any] = Field(default_factory=dict, description="Further parameters of the request, as they are")

    @model_validator(mode="after")
    def _extra_is_extra(self) -> "ChatTarget":
        own = {
            "model",
            "messages",
            "temperature",
            "max_tokens",
            "seed",
            "tools",
            "schema",
            "response_format",
            "repeat",
            "stream",
        }
        taken = self.extra.keys() & own
        if taken:
            raise ValueError(f"extra: got {min(taken)!r}, wanted only what has no field of its own")
        return self


class PythonTarget(_Target):
    """A function of the user's, plain or async."""

    kind: Literal["python"]
    function: str = Field(description='Where it is: "module:name"')


def _check_url(url: str) -> None:
    if "@" in re.split("[/?#]", url.partition("://")[2])[0]:
        raise ValueError("url: holds a user or a password, wanted a header from the environment")
    try:
        parts = urlsplit(url)
        sound = bool(re.match("https?://", url)) and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound:
        raise ValueError(f"url: got {url!r}, wanted http://… or https://…")


class HttpTarget(_Target):
    """An application behind HTTP: each example is posted as JSON."""

    kind: Literal["http"]
    url: str = Field(description="Where to post")
    body: Any = Field(
        None,
        description="The JSON to post: {field} in a text is filled from the inputs, and a text that is just {field} "
        "becomes that field as it is. The inputs where left out",
    )
    answer: str | None = Field(
        None, description="Where the answer stands in the response, such as choices.0.message.content; else all of it"
    )
    headers: dict[str, str] = Field(default_factory=dict, description="${NAME} in a value is an environment variable")
    timeout_s: float = Field(60.0, gt=0, description="Seconds that one attempt may take")
    attempts: int = Field(4, ge=1, description="How often one example is posted before its failure is kept")
    max_in_flight: int = Field(16, ge=1, description="Most requests under way at once, per process")

    @model_validator(mode="after")
    def _no_key_is_written_down(self) -> "HttpTarget":
        _check_url(self.url)
        for name, value in self.headers.items():
            if re.search(r"auth|key|token|secret|cookie", name, re.IGNORECASE) and not re.search(r"\$\{\w+\}", value):
                raise ValueError(f"headers: {name} holds a value, wanted ${{NAME}} of an environment variable")
        return self


class RecordedTarget(_Target):
    """Answers that were given before: in a file, in a column of the dataset, or in another experiment."""

    kind: Literal["recorded"]
    path: str | None = Field(
        None, description='A file of {"id" or "inputs", "outputs"}: .jsonl, .json, .csv or .parquet'
    )
    columns: AnswerColumns | None = Field(None, description="Which columns of the file are what, where they are others")
    column: str | None = Field(
        None,
        description="The field of the examples' metadata that holds the answer; `reference_outputs` for the reference",
    )
    experiment: str | None = Field(
        None, description="An experiment in the store: its id, the beginning of one, or its name"
    )

    @model_validator(mode="after")
    def _one_source(self) -> "RecordedTarget":
        sources = [key for key in ("path", "column", "experiment") if getattr(self, key) is not None]
        if len(sources) != 1:
            raise ValueError(f"got {' and '.join(sources) or 'no source'}, wanted one of path, column and experiment")
        if self.columns is not None and self.path is None:
            raise ValueError("columns: wanted only with path")
        return self


TargetSpec = Annotated[ChatTarget | PythonTarget | HttpTarget | RecordedTarget, Field(discriminator="kind")]
