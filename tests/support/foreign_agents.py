"""The agent of LangGraph's first example, with and without a memory, and users of openevals."""

from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.checkpoint.memory import InMemorySaver
from openevals.simulators import create_async_llm_simulated_user, create_llm_simulated_user


def get_weather(city: str) -> str:
    """Get weather for a given city."""
    return f"It's always sunny in {city}!"


class Weather(GenericFakeChatModel):
    """Calls the tool when a city is named last, and says how many messages it has read."""

    def bind_tools(self, tools: Any, **_: Any) -> "Weather":
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Any:
        last = messages[-1]
        called = AIMessage("", tool_calls=[{"name": "get_weather", "args": {"city": "SF"}, "id": "1"}])
        self.messages = iter(
            [called if "SF" in str(last.content) and last.type == "human" else AIMessage(f"read {len(messages)}")]
        )
        return super()._generate(messages, *args, **kwargs)


agent = create_agent(model=Weather(messages=iter([])), tools=[get_weather], system_prompt="You are a helpful assistant")
remembers = create_agent(model=Weather(messages=iter([])), tools=[get_weather], checkpointer=InMemorySaver())


def _client() -> GenericFakeChatModel:
    return GenericFakeChatModel(messages=iter([AIMessage("what is the weather in SF"), AIMessage("ok [END]")]))


user = create_llm_simulated_user(system="You ask for the weather.", client=_client(), fixed_responses=["Hello"])
async_user = create_async_llm_simulated_user(system="You ask.", client=_client(), fixed_responses=["Hello"])
