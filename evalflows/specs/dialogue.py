"""Specs of conversations that a target has with a user: who the user is, and the world that tools change."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from evalflows.specs.model import SpecModel

STOP = "[END]"
"""What a simulated user writes to end a conversation."""

MOST_TRIALS = 2
"""Times that a conversation is tried: once more if the user did not keep to its goal."""

MOST_TURNS = 10
"""Turns of a conversation whose spec says no `max_turns`; a script is then said to its end."""

USER_FIELDS = ("persona", "goal", "facts", "must_not_tell", "first_message")
"""Fields of an example, among its inputs or metadata, that only a simulated user and the judges see."""
HISTORY = "history"
"""The field with the messages before the conversation, which are given."""
STATE = "state"
"""The field, of the inputs or metadata, that a world is built from; and the method that returns its state."""
SCRIPT_FIELDS = ("messages", "turns", "next_user_input")
"""Fields in which a scripted user's messages are looked for, in this order; else it is the only field of the inputs."""


class PromptFile(SpecModel):
    """A prompt in a file of its own. Its text is part of the target's version."""

    file: str = Field(description="The path of the file, relative to the working folder", min_length=1)


class _Spec(SpecModel):
    pass


class ScriptedUser(_Spec):
    """The messages of the example, one after the other, regardless of the answers."""

    kind: Literal["scripted"]
    messages: str | None = Field(
        None,
        description="The path of the user's messages, texts or {role, content} (those of the role user), such as "
        "inputs.turns. Default: inputs.messages, inputs.turns, inputs.next_user_input, or the only input field",
    )


class SimulatedUser(_Spec):
    """A model that plays the user: its persona, goal and facts come from the example."""

    kind: Literal["simulated"]
    connection: str = Field("openai", description="The name of the connection")
    model: str | None = Field(None, description="The model; default: the connection's model")
    prompt: str | PromptFile | None = Field(
        None,
        description="The model's instructions, or {file: prompts/user.md}; {persona}, {goal}, {facts}, "
        "{must_not_tell} and other fields are filled from the example. Default: "
        "evalflows/evaluators/prompts/simulated_user.md",
    )
    temperature: float | None = Field(None, ge=0, description="Sampling temperature")
    max_tokens: int | None = Field(None, ge=1, description="Maximum number of tokens of a message")
    stop: str = Field(STOP, min_length=1, description="Text with which the model ends the conversation")


class PythonUser(_Spec):
    """Your own function, sync or async, that gets the messages so far and returns the next message, or None."""

    kind: Literal["python"]
    function: str = Field(description='The function as "module:name"')
    stop: str | None = Field(None, min_length=1, description="Text in a message that ends the conversation")


UserSpec = Annotated[ScriptedUser | SimulatedUser | PythonUser, Field(discriminator="kind")]


class UserCheck(_Spec):
    """The judge `user_kept_to_goal`: a conversation that it rejects is an invalid trial, not a fault of the target."""

    connection: str = Field("openai", description="The name of the connection")
    model: str | None = Field(None, description="The model; default: the connection's model")


class FaultSpec(_Spec):
    """Faults of one tool. They are drawn by example and repetition, the same for all targets of a run."""

    error: float = Field(0.0, ge=0, le=1, description="The share of calls that fail")
    slow: float = Field(1.0, ge=0, le=1, description="The share of calls that take `slow_s` longer")
    slow_s: float = Field(0.0, ge=0, le=600, description="Delay of slow calls, in seconds")


class Place(_Spec):
    """A header of a request, or a field of its body."""

    kind: Literal["header", "field"]
    name: str

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, given: object) -> object:
        if not isinstance(given, str):
            return given
        kind, colon, name = given.partition(":")
        if not colon or kind not in ("header", "field") or not name.strip():
            raise ValueError(f"got {given!r}, wanted header:NAME or field:NAME")
        return {"kind": kind, "name": name.strip()}
