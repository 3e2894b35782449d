"""A conversation: who speaks when, what ends it, what the world is then, and which trials do not count."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import pytest
from pydantic import ValidationError
from shop import ORDERS

from evalflows.engine.dialogue import check_conversation, conversation
from evalflows.engine.worlds import ToolError, WorldView, world_class
from evalflows.specs.errors import CallError, InputError
from evalflows.specs.protocols import Completion, Message
from evalflows.specs.target import ConversationTarget

Says = Callable[[Sequence[Message], Mapping[str, Any]], Any]


def spec(**settings: Any) -> ConversationTarget:
    given = {"target": {"kind": "python", "function": "shop:agent"}} | settings
    return ConversationTarget.model_validate({"kind": "conversation", "name": "shop"} | given)


def hold(given: ConversationTarget, says: Says | None = None, metadata: Any = None, **inputs: Any) -> dict[str, Any]:
    """Hold one conversation. `says` answers for every model: a text, or the fields of a completion."""

    def completes(_: str) -> Any:
        async def complete(messages: Sequence[Message], **parameters: Any) -> Completion:
            assert says is not None
            said = says(messages, parameters)
            fields = said if isinstance(said, dict) else {"text": said}
            return Completion(**{"text": "", "model": "stub", "call_id": "call-1"} | fields)

        return complete

    target = conversation(given, completes, lambda _: None, frozenset(inputs))  # type: ignore[arg-type, return-value]
    available = {"inputs": inputs, "metadata": metadata or {}, "example_id": "q1", "repetition": 0}

    async def wait() -> Any:
        return await target.call(available)

    outputs: dict[str, Any] = asyncio.run(wait()).outputs
    return outputs


def said(outputs: Mapping[str, Any], role: str) -> list[Any]:
    return [message["content"] for message in outputs["messages"] if message["role"] == role]


def shop() -> dict[str, Any]:
    return {"orders": deepcopy(ORDERS)}


def test_a_script_is_said_to_its_end_after_the_given_history() -> None:
    given = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    for inputs in (
        {
            "messages": [
                "First",
                {"role": "assistant", "content": "recorded"},
                {"role": "user", "content": "Then refund A1"},
            ]
        },
        {"turns": ["First", "Then refund A1"]},
        {"asked": ["First", "Then refund A1"]},
    ):
        outputs = hold(spec(world="shop:Shop"), state=shop(), history=given, **inputs)
        assert said(outputs, "user") == ["Hi", "First", "Then refund A1"]
        assert said(outputs, "assistant") == ["Hello", "Which order?", "done"]
        assert outputs["ended"] == "script"
        assert outputs["state"]["orders"]["A1"] == {"status": "refunded", "total": 20.0, "reason": "late"}
    for script, settings, ended in (
        (["a", "b"], {"max_turns": 1}, "max_turns"),
        (["a"], {"max_turns": 1, "on_max_turns": "fail"}, "script"),
        (["a"] * 12, {"on_max_turns": "fail"}, "script"),
    ):
        assert hold(spec(world="shop:Shop", **settings), state=shop(), turns=script)["ended"] == ended
    with pytest.raises(CallError, match=r"not over after 1 turn$"):
        hold(spec(world="shop:Shop", max_turns=1, on_max_turns="fail"), state=shop(), turns=["a", "b"])
    for inputs in ({"a": "x", "b": "y"}, {"turns": []}, {"turns": [" "]}, {"turns": [{"role": "nobody"}]}):
        with pytest.raises(InputError, match=r"the user's messages|inputs\.turns"):
            check_conversation(spec(), None, {"inputs": inputs, "metadata": {}})


def test_functions_get_what_they_ask_for_and_functions_of_openevals_what_they_know() -> None:
    echoed = hold(spec(target={"kind": "python", "function": "shop:echo"}), next_user_input="Hi")
    assert said(echoed, "assistant") == ["-0 Hi"]
    user = {"kind": "python", "function": "shop:user", "stop": "[END]"}
    outputs = hold(spec(target={"kind": "python", "function": "shop:newest"}, user=user))
    assert (said(outputs, "assistant"), outputs["ended"]) == (["to Hello", "to Please refund A1"], "user")
    assert said(outputs, "user")[-1] == "Thanks"
    for settings, says in (
        ({"world": None}, "target 'shop': 'agent' asks for 'world', which exists only with a `world` in the spec"),
        ({"world": None, "stop": "shop:is_refunded", "target": {"kind": "chat"}}, "stop: .* asks for 'state', which"),
        ({"target": {"kind": "python", "function": "shop:two"}}, "'two' asks for 'goal', wanted one of attachments"),
    ):
        with pytest.raises(InputError, match=says):
            hold(spec(**settings), next_user_input="Hi", goal="x")
    stopped = hold(spec(world="shop:Shop", user=user, stop="shop:is_refunded"), state=shop())
    assert (len(said(stopped, "user")), stopped["ended"]) == (2, "stop")


def test_a_simulated_user_knows_its_part_and_ends_the_conversation() -> None:
    asked: list[Sequence[Message]] = []

    def says(messages: Sequence[Message], parameters: Mapping[str, Any]) -> str:
        if not messages[0]["content"].startswith("You play a user"):
            return f"answer {len(messages)}"
        asked.append(messages)
        return ["I want a refund", "For A1", "Bye [END] and more"][len(asked) - 1]

    chat = {"kind": "chat", "system": "You serve {shop}."}
    user = {"kind": "simulated"}
    outputs = hold(spec(target=chat, user=user), says, {"goal": "get a refund", "facts": ["order A1"]}, shop="us")
    assert said(outputs, "user") == ["I want a refund", "For A1", "Bye"]
    assert said(outputs, "assistant") == ["answer 2", "answer 4"]
    assert outputs["ended"] == "user"
    assert "get a refund" in asked[0][0]["content"] and "- order A1" in asked[0][0]["content"]
    assert [message["role"] for message in asked[2]] == ["system", "user", "assistant", "user", "assistant", "user"]
    given = {"inputs": {"turns": "Hi"}, "metadata": {"topic": "x"}}
    for settings, wanted in (
        ({"user": {"kind": "scripted", "messages": "inputs.nope"}}, "no 'inputs.nope', inputs has turns"),
        ({"user": {"kind": "simulated", "prompt": "{metadata.topic}"}}, "got {metadata.topic}, wanted {topic}"),
    ):
        with pytest.raises(InputError, match=wanted):
            check_conversation(spec(**settings), None, given)
    for metadata, inputs, wanted in (({}, {"shop": "us"}, "the user's goal"), ({"goal": "x"}, {}, "asks for {shop}")):
        with pytest.raises(InputError, match=wanted):
            check_conversation(spec(target=chat, user=user), None, {"inputs": inputs, "metadata": metadata})
    asked.clear()
    with pytest.raises(CallError, match="not over after 1 turn") as failed:
        hold(spec(target=chat, user=user, max_turns=1, on_max_turns="fail"), says, {"goal": "x"}, shop="us")
    assert failed.value.kind == "too_many_turns"


def calling(name: str, arguments: str) -> dict[str, Any]:
    call = {"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"tool_calls": [call, call]}


def test_a_model_calls_tools_until_it_answers_and_reads_what_was_wrong_with_a_call() -> None:
    script = [
        calling("look_up", '{"order": "Z9"}'),
        calling("refund", '{"order": "A1", "reason": "bored"}'),
        calling("refund", "{not json"),
        calling("dance", "{}"),
        calling("refund", '{"order": "A1"}'),
        "Refunded.",
    ]
    offered: list[Any] = []

    def says(messages: Sequence[Message], parameters: Mapping[str, Any]) -> Any:
        offered.append(parameters["tools"])
        return script[len(offered) - 1]

    outputs = hold(spec(target={"kind": "chat"}, world="shop:Shop"), says, {"state": shop()}, turns=["Refund A1"])
    results = said(outputs, "tool")[::2]
    for result, wanted in zip(
        results,
        [
            "error: ValueError: no order Z9",
            "error: arguments: reason: Input should be 'late' or 'damaged'",
            "error: arguments: no JSON",
            "error: no tool 'dance'",
            "done",
        ],
        strict=True,
    ):
        assert wanted in result
    assert "shop.py" not in "".join(results), "where the code is, an agent must not see"
    assert said(outputs, "assistant")[-1] == "Refunded."
    assert outputs["state"]["orders"]["A1"]["status"] == "refunded"
    by_name = {tool["function"]["name"]: tool["function"] for tool in offered[0]}
    assert by_name["refund"]["description"] == "Refund an order."
    assert by_name["refund"]["parameters"]["required"] == ["order"]
    with pytest.raises(CallError, match="no answer after 3 steps"):
        hold(
            spec(target={"kind": "chat"}, world="shop:Shop", max_steps=3),
            lambda *_: script[0],
            state=shop(),
            turns=["x"],
        )


def test_faults_are_those_of_the_trial_whoever_calls_the_tool() -> None:
    made = world_class(spec(world="shop:Shop", faults={"refund": {"error": 0.5}}))
    assert made is not None
    available = {"inputs": {"state": shop()}, "metadata": {}}

    async def fails(seed: str, by_function: bool) -> list[bool]:
        world, failed = made.build(available, seed), list[bool]()
        for _ in range(20):
            if by_function:
                try:
                    failed.append(await WorldView(world).refund("A1") != "done")
                except ToolError:
                    failed.append(True)
            else:
                failed.append((await world.call("refund", {"order": "A1"})).error is not None)
        return failed

    by_model, by_function, other = (asyncio.run(fails(*each)) for each in (("a", False), ("a", True), ("b", False)))
    assert by_model == by_function != other
    assert 3 < sum(by_model) < 17


def test_a_trial_whose_user_left_its_goal_is_made_once_more_and_then_does_not_count() -> None:
    verdicts = ["gave_up", "kept"]

    def says(messages: Any, parameters: Mapping[str, Any]) -> Any:
        if "schema" in parameters:
            return {"parsed": {"verdict": verdicts.pop(0), "reasoning": "since"}}
        return "Bye [END]" if messages[0]["role"] == "system" and len(messages) > 2 else "hm"

    given = spec(target={"kind": "chat"}, user={"kind": "simulated"}, user_check={"model": "judge"})
    outputs = hold(given, says, {"goal": "x"})
    assert outputs["invalid_trials"] == [{"verdict": "gave_up", "comment": "since"}]
    verdicts += ["gave_up", "left_persona"]
    with pytest.raises(CallError, match="in 2 trials: gave_up: since; left_persona: since") as failed:
        hold(given, says, {"goal": "x"})
    assert failed.value.kind == "invalid_trial"


@pytest.mark.parametrize(
    ("settings", "kind", "says"),
    [
        ({"target": {"kind": "python", "function": "shop:silent"}}, "agent_failed", "turn 1: answered nothing"),
        ({"world": "shop:Closed"}, "world_failed", "cannot be built: RuntimeError: the shop is closed"),
        ({"world": "shop:Unstorable"}, "world_failed", "state()"),
    ],
)
def test_who_is_at_fault_is_said(settings: dict[str, Any], kind: str, says: str) -> None:
    with pytest.raises(CallError) as failed:
        hold(spec(**settings), state=shop(), turns=["refund A1"])
    assert failed.value.kind == kind
    assert says in str(failed.value)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"session": "header:X"}, "wanted only with an HTTP target"),
        ({"world": "shop:Shop", "world_at": "header:X"}, "world_at: wanted only with an HTTP target"),
        ({"session": "cookie:X", "target": {"kind": "http", "url": "http://localhost"}}, "wanted header:NAME"),
        ({"faults": {"refund": {"error": 0.1}}}, "wanted only with a world"),
        ({"target": {"kind": "chat", "user": "{x}"}}, "the user speaks"),
        ({"target": {"kind": "http", "url": "http://localhost"}, "world": "shop:Shop"}, "world_at"),
        ({"user_check": {}}, "a script cannot leave its goal"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        spec(**settings)


@pytest.mark.parametrize(
    ("world", "faults", "says"),
    [
        ("shop:Unhinted", {}, "look_up: order has no type hint"),
        ("shop:agent", {}, "wanted a class with a method state()"),
        ("shop:Shop", {"refnd": {}}, "got 'refnd', wanted refund"),
    ],
)
def test_worlds_that_cannot_be_used_are_refused(world: str, faults: Any, says: str) -> None:
    with pytest.raises(InputError, match=says.replace("(", r"\(").replace(")", r"\)")):
        world_class(spec(world=world, faults=faults))


@pytest.mark.parametrize(("agent", "user"), [("agent", "user"), ("remembers", "async_user")])
def test_agents_of_langgraph_and_users_of_openevals_are_used_unchanged(agent: str, user: str) -> None:
    target = {"kind": "python", "function": f"foreign_agents:{agent}"}
    speaks = {"kind": "python", "function": f"foreign_agents:{user}", "stop": "[END]"}
    outputs = hold(spec(target=target, user=speaks))
    n_system = int(agent == "agent")
    assert said(outputs, "user") == ["Hello", "what is the weather in SF", "ok"]
    assert said(outputs, "assistant") == [f"read {1 + n_system}", "", f"read {5 + n_system}"]
    assert said(outputs, "tool") == ["It's always sunny in SF!"]
    (call,) = next(message["tool_calls"] for message in outputs["messages"] if "tool_calls" in message)
    assert call["function"] == {"name": "get_weather", "arguments": '{"city":"SF"}'}
