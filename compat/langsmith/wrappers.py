"""`wrap_openai`: `llm.wrap` by LangSmith's name."""

from typing import Any

from compat.langsmith.refusal import refusing
from llm.wrapped import SomeClient, wrap


@refusing(
    tracing_extra="what is said of a call is its request",
    completions_name="the legacy completions are not recorded",
)
def wrap_openai(
    client: SomeClient,
    *,
    tracing_extra: Any = None,
    chat_name: str = "ChatOpenAI",
    completions_name: str = "OpenAI",
) -> SomeClient:
    """Record the calls of an OpenAI client, plain or async, in the run that they are made for. Returns the client.

    `chat_name` is what the steps are called. Raises InputError for another client, and for the other options.
    """
    return wrap(client, name=chat_name)
