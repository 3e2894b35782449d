"""Target specs: the systems under test, which map inputs to outputs."""

import re
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from evalflows.specs.addresses import check_address, check_headers
from evalflows.specs.columns import AnswerColumns
from evalflows.specs.connections import Mode
from evalflows.specs.dialogue import (
    MOST_TURNS,
    STATE,
    FaultSpec,
    Place,
    PromptFile,
    PythonUser,
    ScriptedUser,
    SimulatedUser,
    UserCheck,
    UserSpec,
)
from evalflows.specs.files import FilePath
from evalflows.specs.model import SpecModel

OF_REASONING = ("max_completion_tokens", "reasoning_effort")
"""Parameters of reasoning models, which a chat target and a built-in judge have."""


class _Target(SpecModel):
    name: str = Field("target", description="The name of this variant in results", min_length=1)
    version: str | None = Field(
        None, description="Its version, such as v7 or a git tag; distinguishes runs of one name"
    )
    factors: dict[str, str] = Field(
        default_factory=dict,
        description="Its cell of a matrix: the level of each factor. The matrix sets it",
        exclude_if=lambda factors: not factors,
    )

    @property
    def connections(self) -> list[tuple[str, str | None]]:
        """The connections whose models it calls, each with the model that it names."""
        return []

    @property
    def code(self) -> list[tuple[str, str]]:
        """References to the user's own code, each after the field that has it."""
        return []


class ChatTarget(_Target):
    """One chat completion per example."""

    kind: Literal["chat"]
    connection: str = Field("openai", description="The name of the connection")
    model: str | None = Field(None, description="The model; default: the connection's model")
    mode: Mode | None = Field(
        None, description="How its calls are made: direct or batch; default: the spec's or the connection's mode"
    )
    system: str | PromptFile | None = Field(
        None, description="System message, or {file: prompts/system.md}; {field} is filled from the inputs"
    )
    messages: str | list[dict[str, Any]] | PromptFile | None = Field(
        None,
        description="The input field that holds a conversation, a list of {role, content} messages; or such a list, or "
        "{file: prompts/messages.yaml} with one, whose {field} are filled from the inputs",
    )
    user: str | PromptFile | None = Field(
        None,
        description="User message, or {file: prompts/user.md}; {field} is filled from the inputs. Default: only the "
        "conversation, or the only input field",
    )
    temperature: float | None = Field(None, ge=0, description="Sampling temperature")
    max_tokens: int | None = Field(None, ge=1, description="Maximum number of tokens of an answer")
    max_completion_tokens: int | None = Field(
        None, ge=1, description="The same for reasoning models: of an answer and the thinking before it"
    )
    reasoning_effort: str | None = Field(
        None, min_length=1, description="How long a reasoning model thinks, as its provider calls it, such as low"
    )
    seed: int | None = Field(None, description="Sampling seed, if the provider supports one")
    tools: list[dict[str, Any]] | str | None = Field(
        None,
        description="Tools that the model may call, in OpenAI's format or as functions (name, description, "
        "parameters); or the path to the example's own, such as inputs.tools or metadata.tools",
    )
    response_schema: dict[str, Any] | None = Field(
        None, description="A JSON schema of the answer; its fields become the outputs"
    )
    truncated: Literal["fail", "score"] = Field(
        "fail", description="Whether an answer that stops at the token limit fails, or is scored as it is"
    )
    strip_thinking: bool = Field(
        False, description="Leave out the thinking before an answer, up to </think>, if it is part of the text"
    )
    extra: dict[str, Any] = Field(
        default_factory=dict, description="Further parameters of the request, passed unchanged"
    )

    @model_validator(mode="after")
    def _extra_is_extra(self) -> "ChatTarget":
        own = {
            *("model", "messages", "temperature", "max_tokens", "seed"),
            *("tools", "schema", "response_format", "repeat", "stream"),
        }
        taken = self.extra.keys() & (own | {*self._of_reasoning})
        if taken:
            raise ValueError(f"extra: got {min(taken)!r}, wanted only parameters without a field of their own")
        if self.max_tokens is not None and {"max_completion_tokens"} & {*self._of_reasoning, *self.extra}:
            raise ValueError("got max_tokens and max_completion_tokens, wanted one of them")
        return self

    @property
    def _of_reasoning(self) -> dict[str, Any]:
        return {name: value for name in OF_REASONING if (value := getattr(self, name)) is not None}

    @property
    def as_sent(self) -> "ChatTarget":
        """The target with its parameters for reasoning models among `extra`: what is asked is the same, and so is the
        version."""
        nothing: dict[str, Any] = dict.fromkeys(OF_REASONING)
        return self.model_copy(update={**nothing, "extra": self.extra | self._of_reasoning})

    @property
    def connections(self) -> list[tuple[str, str | None]]:
        return [(self.connection, self.model)]

    @property
    def templates(self) -> dict[str, str]:
        """The texts whose {field} are filled, by where they stand. Raise TypeError for a file that was not read."""
        parts: dict[str, Any] = {"system": self.system, "user": self.user}
        if isinstance(self.messages, list):
            parts |= {f"messages.{index}": message.get("content") for index, message in enumerate(self.messages)}
        every = {**parts, "messages": self.messages}
        if files := [name for name, value in every.items() if isinstance(value, PromptFile)]:
            raise TypeError(f"target {self.name!r}: {files[0]}: the file was not read")
        return {name: text for name, text in parts.items() if isinstance(text, str)}

    @model_validator(mode="after")
    def _messages_have_roles(self) -> "ChatTarget":
        for index, message in enumerate(self.messages if isinstance(self.messages, list) else ()):
            if not isinstance(message.get("role"), str):
                raise ValueError(f"messages.{index}: got no role, wanted {{role, content}}")
        return self

    @model_validator(mode="after")
    def _tools_have_a_path(self) -> "ChatTarget":
        if isinstance(self.tools, str) and not re.fullmatch(r"(inputs|metadata)\..+", self.tools):
            raise ValueError(f"tools: got {self.tools!r}, wanted a list, or a path: inputs.… or metadata.…")
        return self


class _Application(_Target):
    answers_of: str | None = Field(
        None,
        description="The id of an experiment of its version: its answers are reused, and only missing ones are "
        "requested",
        exclude_if=lambda experiment: experiment is None,
    )


class PythonTarget(_Application):
    """A function of the user's, synchronous or async."""

    kind: Literal["python"]
    function: str = Field(description='The function as "module:name"')
    timeout_s: float | None = Field(
        None, gt=0, description="Maximum seconds for one answer, including its model calls; a slower answer fails"
    )

    @property
    def code(self) -> list[tuple[str, str]]:
        return [("target", self.function)]


class HttpTarget(_Application):
    """An application behind HTTP; each example is posted as JSON."""

    kind: Literal["http"]
    url: str = Field(description="The URL to post to")
    body: Any = Field(
        None,
        description="The JSON to post: {field} within a text is filled from the inputs, and a text that is only "
        "{field} becomes that field unchanged. Default: the inputs",
    )
    answer: str | None = Field(
        None,
        description="The path of the answer in the response, such as choices.0.message.content; default: all of it",
    )
    usage: str | None = Field(
        None,
        description="The path of an object in the response that reports the application's own model calls: "
        "input_tokens or prompt_tokens, output_tokens or completion_tokens, cost_usd, calls",
    )
    headers: dict[str, str] = Field(
        default_factory=dict, description="HTTP headers; ${NAME} in a value is an environment variable"
    )
    timeout_s: float = Field(60.0, gt=0, description="Timeout of one attempt, in seconds")
    attempts: int = Field(4, ge=1, description="Maximum number of attempts per example")
    max_response_mb: float = Field(64.0, gt=0, description="Maximum size of a decompressed response, in megabytes")
    max_in_flight: int = Field(16, ge=1, description="Maximum number of concurrent requests, per process")
    max_wait_s: float = Field(
        600.0, ge=0, description="Longest wait before another attempt that the application may request, in seconds"
    )
    content_types: list[str] = Field(
        default_factory=list,
        description="Further content types to accept as text answers, such as text/html; JSON and plain text always "
        "count",
    )
    version_url: str | None = Field(
        None, description="An address that returns the application's version (GET), called once before the run"
    )
    version_header: str | None = Field(
        None, description="The header of a response that holds the application's version"
    )

    @model_validator(mode="after")
    def _no_secret_is_written_down(self) -> "HttpTarget":
        check_address(self.url, "url")
        if self.version_url is not None:
            check_address(self.version_url, "version_url")
        check_headers(self.headers)
        return self


class RecordedTarget(_Target):
    """Existing answers: from a file, from a column of the dataset, or from another experiment."""

    kind: Literal["recorded"]
    path: FilePath | None = Field(
        None,
        description='A file of {"id" or "inputs", "outputs"}, and "repetition" (from 0) if it has several answers per '
        "example: .jsonl, .json, .csv or .parquet",
    )
    columns: AnswerColumns | None = Field(
        None, description="Which columns of the file to use, if they have other names"
    )
    column: str | None = Field(
        None,
        description="The metadata field of the examples that holds the answer; `reference_outputs` uses the reference",
    )
    experiment: str | None = Field(
        None, description="An experiment in the store: its id, a unique prefix of it, or its name"
    )

    @model_validator(mode="after")
    def _one_source(self) -> "RecordedTarget":
        sources = [key for key in ("path", "column", "experiment") if getattr(self, key) is not None]
        if len(sources) != 1:
            raise ValueError(f"got {' and '.join(sources) or 'no source'}, wanted one of path, column and experiment")
        if self.columns is not None and self.path is None:
            raise ValueError("columns: wanted only with path")
        return self


class ConversationTarget(_Target):
    """A conversation between another target and a user, turn by turn, in a world that tools change."""

    kind: Literal["conversation"]
    target: Annotated[ChatTarget | PythonTarget | HttpTarget, Field(discriminator="kind")] = Field(
        description="Who answers the user: a chat target with a system message, a function or an application"
    )
    user: UserSpec = Field(default_factory=lambda: ScriptedUser(kind="scripted"), description="Who the user is")
    user_check: UserCheck | None = Field(
        None,
        description="Judge whether the user kept to its goal. If not, the trial is repeated once; a second failure "
        "counts as missing",
    )
    max_turns: int | None = Field(
        None,
        ge=1,
        le=200,
        description="Maximum number of the target's turns; the rest of a script is not sent. "
        f"Default: {MOST_TURNS}, and for a scripted user all of its script",
    )
    on_max_turns: Literal["end", "fail"] = Field(
        "end", description="Whether a conversation, or a script, that is not over by then is judged as it is, or fails"
    )
    max_steps: int = Field(20, ge=1, description="Maximum number of a chat target's model calls in one turn")
    stop: str | None = Field(
        None,
        description='A function "module:name" of the messages, and of the world\'s state if it asks for `state`, that '
        "returns whether the conversation is over after a turn of the target",
    )
    stop_at: str | None = Field(
        None, description="The path of a value in the target's answer, such as done, that ends it if it is true"
    )
    session: Place | None = Field(
        None,
        description="header:NAME or field:NAME in which an application gets the id of the conversation; it is then "
        "sent only the newest messages. Default: it is sent all messages",
    )
    reset: str | None = Field(
        None, description='Called before each trial: a URL to post {"session": id} to, or "module:name"'
    )
    world: str | None = Field(
        None,
        description='A class "module:Class" whose methods are the tools. It is built for each trial from `state`',
    )
    state: str | None = Field(
        None, description="The path of the state in the example; default: inputs.state or metadata.state"
    )
    world_at: Place | None = Field(
        None, description="header:NAME or field:NAME in which an application gets the address of the tools (MCP)"
    )
    faults: dict[str, FaultSpec] = Field(default_factory=dict, description="Faults of the world's tools, by name")

    @model_validator(mode="before")
    @classmethod
    def _target_has_the_name(cls, given: Any) -> Any:
        inner = given.get("target") if isinstance(given, dict) else None
        return {**given, "target": {"name": given.get("name", "target"), **inner}} if isinstance(inner, dict) else given

    @model_validator(mode="after")
    def _is_held_anew(self) -> "ConversationTarget":
        if getattr(self.target, "answers_of", None) is not None:
            raise ValueError("target: answers_of: wanted it omitted: a conversation is held anew")
        return self

    @model_validator(mode="after")
    def _fits(self) -> "ConversationTarget":
        inner = self.target
        if isinstance(inner, ChatTarget):
            own = [
                name for name in ("messages", "user", "tools", "response_schema") if getattr(inner, name) is not None
            ]
            if own:
                raise ValueError(
                    f"target: got {own[0]}, wanted a chat target with a system message: the user speaks, "
                    "and a world has the tools"
                )
        if self.session is not None and not isinstance(inner, HttpTarget):
            raise ValueError("session: wanted only with an HTTP target; a function asks for `session`")
        if self.world_at is not None and not isinstance(inner, HttpTarget):
            raise ValueError("world_at: wanted only with an HTTP target; a function asks for `world`")
        if self.world is None and (self.faults or self.world_at or self.state):
            got = "faults" if self.faults else "world_at" if self.world_at else STATE
            raise ValueError(f"{got}: wanted only with a world")
        if self.world is not None and isinstance(inner, HttpTarget) and self.world_at is None:
            raise ValueError("world_at: an application needs header:NAME or field:NAME for the address of the tools")
        if self.user_check is not None and isinstance(self.user, ScriptedUser):
            raise ValueError("user_check: wanted a simulated user or a function; a script cannot leave its goal")
        return self

    @property
    def connections(self) -> list[tuple[str, str | None]]:
        others = [part for part in (self.user, self.user_check) if isinstance(part, SimulatedUser | UserCheck)]
        return [*self.target.connections, *((part.connection, part.model) for part in others)]

    @property
    def code(self) -> list[tuple[str, str]]:
        named = {
            "user": self.user.function if isinstance(self.user, PythonUser) else None,
            "stop": self.stop,
            "world": self.world,
            "reset": None if self.reset is None or is_address(self.reset) else self.reset,
        }
        return [*self.target.code, *((field, reference) for field, reference in named.items() if reference is not None)]

    @model_validator(mode="after")
    def _no_secret_is_written_down(self) -> "ConversationTarget":
        if self.reset is not None and is_address(self.reset):
            check_address(self.reset, "reset")
        return self


def asked(spec: "TargetSpec") -> "TargetSpec":
    """Return the target that answers: of a conversation the one that the user talks to, else the target itself."""
    return spec.target if isinstance(spec, ConversationTarget) else spec


def is_address(reset: str) -> bool:
    return reset.startswith(("http://", "https://"))


TargetSpec = Annotated[
    ChatTarget | PythonTarget | HttpTarget | RecordedTarget | ConversationTarget, Field(discriminator="kind")
]
