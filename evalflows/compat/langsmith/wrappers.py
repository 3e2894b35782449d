"""`wrap_openai`: LangSmith's name for `llm.wrap`."""

from typing import Any

from evalflows.compat.langsmith.absent import ABSENT
from evalflows.compat.refusal import refusing
from evalflows.llm.wrapped import SomeClient, wrap

__all__ = ["wrap_openai"]


@refusing(
    tracing_extra="a call is recorded with its request only",
    completions_name="calls of the legacy completions API are not recorded",
)
def wrap_openai(
    client: SomeClient, *, tracing_extra: Any = None, chat_name: str = "ChatOpenAI", completions_name: str = "OpenAI"
) -> SomeClient:
    """Record the calls of a sync or async OpenAI client in the current run. Return the client.

    `chat_name` is the name of the steps. Raise InputError for any other client, and for the other options.
    """
    return wrap(client, name=chat_name)


__getattr__ = ABSENT.of_module(__name__)
