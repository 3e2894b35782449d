"""Conversations: turn by turn a user speaks and another target answers, in a world of its own for each trial.

A turn of a function or an application is recorded as it ends, under a key of run, trial and turn, as a model's answer
is. So a conversation that was killed goes on at its turn: earlier turns are read, and the tools that they called are
called again, which leads to the same state.
"""

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import field
from functools import partial
from inspect import Parameter
from typing import Any, NamedTuple, Protocol

from evalflows.engine.worlds import ToolResult, World, WorldClass, WorldView, require_mcp, serve_world, world_class
from evalflows.evaluators.judges.user_kept_to_goal import user_kept_to_goal
from evalflows.evaluators.prompt_texts import NONE, shipped
from evalflows.llm.application_calls import APPLICATION, charged
from evalflows.llm.endpoint_errors import fault_of
from evalflows.llm.ledger import TURN, AnsweredCall, Recorder, call_key, current, recording
from evalflows.llm.wrapped import plain
from evalflows.specs.columns import checked_messages, value_of
from evalflows.specs.dialogue import (
    HISTORY,
    MOST_TRIALS,
    MOST_TURNS,
    SCRIPT_FIELDS,
    STATE,
    USER_FIELDS,
    PythonUser,
    ScriptedUser,
    SimulatedUser,
)
from evalflows.specs.errors import NOT_ATTEMPTED, UNREACHABLE, CallError, ErrorKind, InputError, StorageError, short
from evalflows.specs.files import texts
from evalflows.specs.frozen import dataclass
from evalflows.specs.metric_names import USER, USER_CHECK
from evalflows.specs.placeholders import fill, fill_json, placeholders
from evalflows.specs.protocols import Complete, Completes, Message, Post, Posted
from evalflows.specs.reference import is_called, load, name_of, parameters_of, version_of
from evalflows.specs.target import ChatTarget, ConversationTarget, HttpTarget, PythonTarget, is_address
from evalflows.specs.thinking import without_thinking
from evalflows.specs.values import stored
from evalflows.store.records import CallRow, new_id, now, to_json
from evalflows.targets import (
    OFFERED,
    Answer,
    Target,
    at_path,
    awaited,
    chat,
    http,
    python,
    seed_of,
    text_of,
)

SIMULATED_USER_PROMPT = shipped("simulated_user")
BEGIN = "Begin the conversation: write your first message."
"""What a simulated user is asked, without a message before."""
SAID = ("messages", "new_messages", "message")
ALSO_OFFERED = (*SAID, "session", "thread_id", "turn", "turn_counter")
"""What a function in a conversation can ask for, besides what other targets can: the messages so far, those since the
target answered last, the text of the newest one, the id of the conversation, and the number of the turn from 1
(`turn_counter`: from 0)."""
OF_WORLD = {
    "world": "only with a `world` in the spec, and for the target",
    STATE: "only with a `world`, and not for the target",
}
HIDDEN = frozenset({*USER_FIELDS, *SCRIPT_FIELDS, HISTORY, STATE})
"""Fields of the inputs that the target does not see: the user's and the world's."""
TEXT_FIELDS = ("output", "answer", "message", "content", "response")
"""Fields in which an answer of several fields has its message."""

BLAMED_ALREADY: frozenset[ErrorKind] = UNREACHABLE | NOT_ATTEMPTED | {"world_failed", "too_many_turns"}
"""Kinds of errors that are neither the target's nor the user's, or say already whose they are."""

_ROLES = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant", "function": "tool"}
"""Roles of OpenAI's messages, by the types of LangChain's."""

Posts = Callable[[HttpTarget], Post]


class Said(NamedTuple):
    """What a user says: a message, or None; and whether that is the last one."""

    message: Message | None
    is_last: bool = False


@dataclass(slots=True, kw_only=True)
class Trial:
    """One trial of a conversation, as far as it is."""

    available: Mapping[str, Any]
    number: int
    messages: list[Message] = field(default_factory=list)
    world: World | None = None
    address: str | None = None
    """Of the world's tools, for an application."""
    answered: int = 0
    """The number of messages when the target answered last: what follows is new to it."""
    latency_s: float = 0.0
    """Of the target's turns."""
    version: str | None = None
    """Of the application that answered."""

    @property
    def session(self) -> str:
        """The id of the conversation, which is the same when it goes on after an interruption."""
        recorder = current()
        return f"{recorder.subject_id if recorder else self.available['example_id']}-{self.number}"

    @property
    def agent_inputs(self) -> dict[str, Any]:
        """The inputs without what only the user and the world may see."""
        return {name: value for name, value in self.available["inputs"].items() if name not in HIDDEN}

    def repeat(self, turn: int) -> int:
        """Return what tells the calls of this turn from all others: a seed of example, repetition, trial and turn."""
        return seed_of(f"{self.available['example_id']}#{self.number}.{turn}", self.available["repetition"])

    def offered(self, turn: int, *, is_target: bool) -> dict[str, Any]:
        """Return what a function is offered besides the example."""
        offered: dict[str, Any] = {
            "messages": [dict(message) for message in self.messages],
            "new_messages": [dict(message) for message in self.messages[self.answered :]],
            "message": text_of(self.messages[-1]) if self.messages else None,
            "session": self.session,
            "thread_id": self.session,
            "turn": turn,
            "turn_counter": turn - 1,
            "seed": self.repeat(turn),
        }
        if self.world is not None:
            offered |= {"world": WorldView(self.world)} if is_target else {STATE: self.world.state()}
        return offered


class User(Protocol):
    """Says the next message of a conversation."""

    def __call__(self, trial: Trial, turn: int) -> Awaitable[Said]: ...


class Turn(NamedTuple):
    """What a target gave in one turn."""

    messages: list[Message]
    returned: Any = None  # for the path of `stop_at`
    answer: Answer = Answer(outputs=None)


Agent = Callable[[Trial, int], Awaitable[Turn]]


def conversation(
    spec: ConversationTarget,
    completes: Completes,
    posts: Posts,
    fields: frozenset[str],
    *,
    tell: Callable[[Message], None] | None = None,
    user: "User | None" = None,
) -> Target:
    """Build the target from its spec.

    Its outputs are `messages` (from the given history on), `ended` (user, script, agent, stop or max_turns), `state`
    with a world, and `invalid_trials`, the verdicts on trials that did not count, if there are any.

    `fields` are the fields that the inputs of all examples share; `tell` is called with each message as it is said, and
    `user` speaks instead of the spec's. Raise InputError for code that cannot be used.
    """
    if spec.world_at is not None:
        require_mcp(f"target {spec.name!r}")
    world = world_class(spec)
    agent = _agent(spec, completes, posts, fields, world)
    stop = None if spec.stop is None else _function(spec, load(spec.stop), "stop")
    talk = _Talk(
        spec=spec,
        agent=agent,
        user=user or _user(spec, completes),
        is_script=user is None and isinstance(spec.user, ScriptedUser),
        tell=tell or (lambda _: None),
        world=world,
        stop=stop,
        reset=_reset(spec, posts),
        check=None if spec.user_check is None else completes(spec.user_check.connection),
    )
    return Target(call=talk.hold, is_async=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Talk:
    """The loop of trials and turns."""

    spec: ConversationTarget
    agent: Agent
    user: User
    is_script: bool
    tell: Callable[[Message], None]
    world: WorldClass | None
    stop: Callable[[Trial, int], Awaitable[Any]] | None
    reset: Callable[[Trial, int], Awaitable[Any]] | None
    check: Complete | None

    async def hold(self, available: Mapping[str, Any]) -> Answer:
        """Return the outputs of the first trial that counts. Raise CallError if none does, or if one fails."""
        invalid: list[dict[str, Any]] = []
        for number in range(MOST_TRIALS):
            trial = Trial(available=available, number=number)
            if number and (recorder := current()):
                recorder.steps.clear()  # what the agent did in a trial that does not count
            outputs = await self._outputs(trial)
            if (verdict := await self._invalid(trial, outputs)) is None:
                added = {"invalid_trials": invalid} if invalid else {}
                return Answer(outputs | added, latency_s=trial.latency_s, application_version=trial.version)
            invalid.append(verdict)
            self.tell({"role": "user_check", "content": f"{verdict['verdict']}: {verdict['comment']}"})
        said = "; ".join(f"{verdict['verdict']}: {verdict['comment']}" for verdict in invalid)
        error = CallError("invalid_trial", f"the user did not keep to its goal in {MOST_TRIALS} trials: {said}")
        error.received = to_json(outputs, mend=True)
        raise error

    async def _outputs(self, trial: Trial) -> dict[str, Any]:
        seed = f"{trial.available['example_id']}/{trial.available['repetition']}/{trial.number}"
        if self.world is not None:
            trial.world = self.world.build(trial.available, seed)
        if self.reset is not None:
            await _blamed(self.reset(trial, 0), "agent_failed", "reset")
        with _served(trial, self.spec):
            ended = await self._converse(trial)
        outputs = {"messages": trial.messages, "ended": ended}
        return outputs if trial.world is None else outputs | {STATE: trial.world.state()}

    async def _converse(self, trial: Trial) -> str:
        """Hold the conversation. Return what ended it."""
        trial.messages.extend(given_messages(trial.available))
        for message in trial.messages:
            self.tell(message)
        most = self.spec.max_turns or (len(self._script(trial)) if self.is_script else MOST_TURNS)
        for turn in range(1, most + 1):
            with _apart(USER):
                said = await _blamed(self.user(trial, turn), "user_failed", f"turn {turn}: the user")
            if said.message is not None:
                trial.messages.append(said.message)
                self.tell(said.message)
            if said.is_last or said.message is None:
                return "script" if self.is_script else "user"
            steps = recorder.steps if (recorder := current()) else []
            n_before = len(steps)
            answered = await _blamed(self.agent(trial, turn), "agent_failed", f"turn {turn}")
            trial.messages.extend(answered.messages)
            has_calls = any(message.get("tool_calls") for message in answered.messages)
            for message in [*(() if has_calls else _calls_in(steps[n_before:])), *answered.messages]:
                self.tell(message)
            trial.answered = len(trial.messages)
            trial.latency_s += answered.answer.latency_s or 0.0
            trial.version = answered.answer.application_version or trial.version
            if self.spec.stop_at is not None and _is_true_at(answered.returned, self.spec.stop_at):
                return "agent"
            with _apart(USER):
                if self.stop is not None and await _blamed(self.stop(trial, turn), "user_failed", f"turn {turn}: stop"):
                    return "stop"
        if self.is_script and len(self._script(trial)) == most:
            return "script"
        if self.spec.on_max_turns == "fail":
            turns = "1 turn" if most == 1 else f"{most} turns"
            raise CallError("too_many_turns", f"the conversation was not over after {turns}")
        return "max_turns"

    def _script(self, trial: Trial) -> list[Message]:
        return script_of(self.spec.user, trial.available) if isinstance(self.spec.user, ScriptedUser) else []

    async def _invalid(self, trial: Trial, outputs: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return why a trial does not count; None if it does, and if nobody judges that."""
        if self.check is None or self.spec.user_check is None:
            return None
        complete: Any = partial(self.check, model=self.spec.user_check.model, repeat=trial.repeat(0))
        available = trial.available
        judging = user_kept_to_goal(available["inputs"], dict(outputs), available["metadata"], complete)
        with _apart(USER_CHECK):
            score = await _blamed(judging, "user_failed", "user_check")
        return None if score is None or score.value else {"verdict": score.label, "comment": score.comment}


def _calls_in(steps: Sequence[Mapping[str, Any]]) -> Iterator[Message]:
    """Yield the tools' calls and results as messages: those of a function or an application are only in the steps."""
    for step in (step for step in steps if step["kind"] == "tool"):
        function = {"name": step["name"], "arguments": to_json(plain(step["inputs"]), mend=True)}
        yield {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": function}]}
        result = ToolResult(value=plain(step["outputs"]), error=step["error"])
        yield {"role": "tool", "content": result.text}


@contextmanager
def _apart(who: str) -> Iterator[None]:
    """Record the calls of a block apart from the target's, whose measures they would change."""
    recorder = current()
    with nullcontext() if recorder is None else recording(recorder.of(who)):
        yield


@contextmanager
def _served(trial: Trial, spec: ConversationTarget) -> Iterator[None]:
    """Serve the world to an application while the trial lasts."""
    if trial.world is None or spec.world_at is None:
        yield
        return
    with serve_world(trial.world) as trial.address:
        yield


async def _blamed(work: Awaitable[Any], kind: ErrorKind, who: str) -> Any:
    """Return what is awaited. Raise CallError of this kind for what fails, except where a model was not reached."""
    try:
        return await work
    except StorageError:
        raise
    except Exception as error:
        if isinstance(error, CallError) and error.kind in BLAMED_ALREADY:
            raise
        fault = fault_of(error)
        raise CallError(kind, f"{who}: {fault}", attempts=fault.attempts, trace=fault.trace) from error


def given_messages(available: Mapping[str, Any]) -> list[Message]:
    """Return the messages of an example's `history`. Raise InputError for what are no messages."""
    given = available["inputs"].get(HISTORY)
    try:
        return checked_messages(given or [])
    except ValueError as error:
        raise InputError(f"inputs.{HISTORY}: {error}") from None


def script_of(user: ScriptedUser, available: Mapping[str, Any]) -> list[Message]:
    """Return the messages of a scripted user. Raise InputError for an example without any."""
    where, given = user.messages, None
    if where is None:
        inputs = available["inputs"]
        others = [name for name in inputs if name not in (*USER_FIELDS, HISTORY, STATE)]
        name = next((name for name in SCRIPT_FIELDS if name in inputs), others[0] if len(others) == 1 else None)
        if name is None:
            wanted = f"inputs.{', inputs.'.join(SCRIPT_FIELDS)}, or `messages` of the user"
            raise InputError(f"the user's messages: got {', '.join(inputs) or 'no inputs'}, wanted {wanted}")
        where, given = f"inputs.{name}", inputs[name]
    else:
        given = value_of(available, where, "the user's messages")
    listed = given if isinstance(given, list) else [given]
    said = [item if isinstance(item, Mapping) else {"role": "user", "content": item} for item in listed]
    try:
        messages = [message for message in checked_messages(said) if message["role"] == "user"]
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None
    if not messages or not all(
        text_of(message).strip() or isinstance(message["content"], list) for message in messages
    ):
        raise InputError(f"{where}: got {short(given)}, wanted the user's messages: texts, or {{role, content}}")
    return messages


def user_texts(user: SimulatedUser, available: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts for a simulated user's prompt. Raise InputError for an example without a field that it needs."""
    fields = {**available["metadata"], **available["inputs"]}
    template = _template(user)
    for path in re.findall(r"\{((?:inputs|metadata)\.\w+)\}", template):
        raise InputError(f"the user's prompt: got {{{path}}}, wanted {{{path.partition('.')[2]}}}")
    known = {name: text for name, value in fields.items() if (text := _listed(value))}
    texts = dict.fromkeys(USER_FIELDS, NONE) | known | {"stop": user.stop}
    for name in sorted(placeholders(template)):
        if name not in texts or (name == "goal" and texts[name] == NONE):
            got = ", ".join(fields) or "no field"
            raise InputError(f"the user's {name}: got {got}, wanted inputs.{name} or metadata.{name}")
    return texts


def _template(user: SimulatedUser) -> str:
    if isinstance(user.prompt, str):
        return user.prompt
    if user.prompt is not None:
        raise TypeError(f"user: prompt {user.prompt.file!r} was not read")
    return SIMULATED_USER_PROMPT


def _listed(value: Any) -> str:
    """Return a value as a text: each element of a list on a line, and each field of a mapping."""
    if isinstance(value, Mapping):
        return "\n".join(f"- {name}: {_listed(part)}" for name, part in value.items())
    if isinstance(value, list):
        return "\n".join(f"- {_listed(part)}" for part in value)
    return "" if value is None else value if isinstance(value, str) else to_json(value)


def _user(spec: ConversationTarget, completes: Completes) -> User:
    match spec.user:
        case ScriptedUser():
            return _scripted(spec.user)
        case SimulatedUser():
            return _simulated(spec.user, completes(spec.user.connection))
        case PythonUser():
            return _function_user(spec, spec.user)


def _scripted(user: ScriptedUser) -> User:
    async def says(trial: Trial, turn: int) -> Said:
        script = script_of(user, trial.available)
        return Said(script[turn - 1] if turn <= len(script) else None)

    return says


def _simulated(user: SimulatedUser, complete: Complete) -> User:
    optional = {"temperature": user.temperature, "max_tokens": user.max_tokens}
    parameters: dict[str, Any] = {name: value for name, value in optional.items() if value is not None}

    async def says(trial: Trial, turn: int) -> Said:
        texts = user_texts(user, trial.available)
        if turn == 1 and texts["first_message"] != NONE:
            return _said(texts["first_message"], user.stop)
        system = {"role": "system", "content": fill(_template(user), texts)}
        asked = [system, *_seen_by_user(trial.messages)]
        completion = await complete(asked, model=user.model, repeat=trial.repeat(turn), **parameters)
        text = without_thinking(completion.text).strip()
        if not text:
            raise CallError("empty_answer", "the model said nothing")
        return _said(text, user.stop)

    return says


def _seen_by_user(messages: Sequence[Message]) -> list[Message]:
    """Return the conversation as a model that plays the user sees it: with the roles changed, without tools."""
    seen = [
        {"role": "assistant" if message["role"] == "user" else "user", "content": text}
        for message in messages
        if message["role"] in ("user", "assistant") and (text := text_of(message)).strip()
    ]
    return seen if seen and seen[0]["role"] == "user" else [{"role": "user", "content": BEGIN}, *seen]


def _said(text: str, stop: str | None) -> Said:
    """Return what a user says, without the sign that ends the conversation and what follows it."""
    before, sign, _ = text.partition(stop) if stop else (text, "", "")
    message = {"role": "user", "content": before.strip()} if before.strip() else None
    return Said(message, bool(sign))


def _function_user(spec: ConversationTarget, user: PythonUser) -> User:
    call = _function(spec, load(user.function), "user")

    async def says(trial: Trial, turn: int) -> Said:
        returned = await call(trial, turn)
        if returned is None:
            return Said(None)
        *_, last = _as_messages(returned, [], "user")
        said = _said(text_of(last), user.stop)
        is_text = isinstance(last.get("content"), str)
        return said if is_text else Said(last, said.is_last)

    return says


def _function(
    spec: ConversationTarget,
    function: Any,
    part: str | None = None,
    fields: frozenset[str] = frozenset(),
    timeout_s: float | None = None,
) -> Callable[[Trial, int], Awaitable[Any]]:
    """Return what calls a function of the user's with what it asks for; its only other parameter gets the messages.

    It is the target's own, or another `part` of the spec. A function that asks for `thread_id`, as those of openevals
    do, gets the newest message as `inputs`. Raise InputError for a parameter that cannot be filled.
    """
    is_target, where = part is None, f"target {spec.name!r}{'' if part is None else f': {part}'}"
    parameters = [p for p in parameters_of(function, where) if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    names = {p.name for p in parameters}
    also = ALSO_OFFERED if spec.world is None else (*ALSO_OFFERED, "world" if is_target else STATE)
    known = fields | {*OFFERED, *also}
    others = [p.name for p in parameters if p.name not in known and p.default is Parameter.empty]
    takes_newest = {"thread_id", "inputs"} <= names
    gets_messages = takes_newest or not names.isdisjoint(SAID)
    for name in [*(name for name in others if name in OF_WORLD), *others[0 if gets_messages else 1 :]]:
        wanted = f"which exists {OF_WORLD[name]}" if name in OF_WORLD else f"wanted one of {', '.join(sorted(known))}"
        raise InputError(f"{where}: {name_of(function)!r} asks for {name!r}, {wanted}")
    target = python(function, fields | {*others}, timeout_s, also=also)

    async def call(trial: Trial, turn: int) -> Any:
        offered = trial.offered(turn, is_target=is_target)
        own = trial.agent_inputs if is_target else trial.available["inputs"]
        inputs = {**own, **dict.fromkeys(others, offered["messages"])}
        if takes_newest:
            inputs = dict(trial.messages[-1]) if trial.messages else {}
        return await called(target, {**trial.available, **offered, "inputs": inputs})

    return call


async def called(target: Target, available: Mapping[str, Any]) -> Any:
    """Call a target from the loop: a sync function on a thread, so that it holds nobody up."""
    returned = target.call(available) if target.is_async else await asyncio.to_thread(target.call, available)
    return await awaited(returned)


def _reset(spec: ConversationTarget, posts: Posts) -> Callable[[Trial, int], Awaitable[Any]] | None:
    if spec.reset is None:
        return None
    if not is_address(spec.reset):
        return _function(spec, load(spec.reset), "reset")
    headers = spec.target.headers if isinstance(spec.target, HttpTarget) else {}
    post = posts(HttpTarget(kind="http", name=spec.name, url=spec.reset, headers=headers))

    async def reset(trial: Trial, _: int) -> None:
        await post({"session": trial.session})

    return reset


def _agent(
    spec: ConversationTarget, completes: Completes, posts: Posts, fields: frozenset[str], world: WorldClass | None
) -> Agent:
    match spec.target:
        case ChatTarget():
            return _chat_agent(spec.target, completes(spec.target.connection), world, spec.max_steps)
        case PythonTarget():
            return _remembered(_function_agent(spec, spec.target, fields), version_of(_loaded(spec.target.function)))
        case HttpTarget():
            return _remembered(_http_agent(spec, spec.target, posts(spec.target)), spec.target.url, charge=True)


def _chat_agent(spec: ChatTarget, complete: Complete, world: WorldClass | None, max_steps: int) -> Agent:
    """Ask a model, and call the tools that it asks for, until it answers."""
    offers = {} if world is None else {"tools": "metadata.tools"}
    metadata = {} if world is None else {"tools": [tool.sent for tool in world.tools.values()]}
    asked = chat(spec.as_sent.model_copy(update={"messages": "messages", **offers}), complete)

    async def answer(trial: Trial, turn: int) -> Turn:
        added, repeat, recorder = list[Message](), trial.repeat(turn), current()
        n_before = len(recorder.answered) if recorder else 0
        for _ in range(max_steps):
            inputs = {**trial.agent_inputs, "messages": [*trial.messages, *added]}
            outputs = await awaited(asked.call({"inputs": inputs, "metadata": metadata, "repetition": repeat}))
            calls = outputs.get("tool_calls", [])
            message = {"role": "assistant", "content": outputs.get("output") or None}
            added.append(message | ({"tool_calls": calls} if calls else {}))
            if not calls:
                made = recorder.answered[n_before:] if recorder else []
                return Turn(added, answer=Answer(None, latency_s=sum(call.row.latency_s or 0.0 for call in made)))
            if trial.world is None:
                raise CallError("agent_failed", f"it calls {_named(calls[0])}, but there is no world with tools")
            for call in calls:
                function = call.get("function") or {}
                result = await trial.world.call(str(function.get("name")), function.get("arguments"))
                added.append({"role": "tool", "tool_call_id": call.get("id"), "content": result.text})
        raise CallError("too_many_turns", f"turn {turn}: no answer after {max_steps} steps")

    return answer


def _named(call: Mapping[str, Any]) -> str:
    return short((call.get("function") or {}).get("name"))


def _loaded(reference: str) -> Any:
    """Return a function, or an object of LangChain's that is invoked, such as a graph of LangGraph's."""
    found = load(reference, is_called)
    return found if callable(found) else _invoked(found)


def _invoked(graph: Any) -> Callable[..., Any]:
    """Return a function that invokes a graph with all messages; with the new ones if it keeps those of a thread."""
    remembers = bool(getattr(graph, "checkpointer", None))

    async def invoke(messages: list[Message], new_messages: list[Message], session: str) -> Any:
        given = new_messages if remembers else messages
        return await graph.ainvoke({"messages": given}, {"configurable": {"thread_id": session}})

    vars(invoke)["version_parts"] = [name_of(graph), version_of(graph)]
    return invoke


def _function_agent(spec: ConversationTarget, inner: PythonTarget, fields: frozenset[str]) -> Agent:
    call = _function(spec, _loaded(inner.function), None, fields - HIDDEN, inner.timeout_s)

    async def answer(trial: Trial, turn: int) -> Turn:
        returned = await call(trial, turn)
        return Turn(_as_messages(returned, trial.messages, "assistant"), returned)

    return answer


def _http_agent(spec: ConversationTarget, inner: HttpTarget, post: Post) -> Agent:
    """Post the messages: all of them, or the new ones if the application gets the id of the conversation."""

    async def send(body: Any, headers: Mapping[str, str] = {}) -> Posted:
        return await post(body["body"], {**headers, **body["headers"]})

    posting = http(inner.model_copy(update={"body": "{asked}", "answer": None}), send)

    async def answer(trial: Trial, turn: int) -> Turn:
        new = trial.messages if spec.session is None else trial.messages[trial.answered :]
        values = {
            **trial.agent_inputs,
            "messages": new,
            "message": text_of(trial.messages[-1]),
            "session": trial.session,
            "world": trial.address,
        }
        default = {**trial.agent_inputs, "messages": new}
        body = default if inner.body is None else fill_json(inner.body, values)
        headers: dict[str, str] = {}
        for place, value in ((spec.session, trial.session), (spec.world_at, trial.address)):
            if place is not None and value is not None:
                if place.kind == "header":
                    headers[place.name] = value
                elif isinstance(body, dict):
                    body = {**body, place.name: value}
        asked = {"body": body, "headers": headers}
        given: Answer = await awaited(posting.call({"inputs": {"asked": asked}}))
        content = given.outputs if inner.answer is None else at_path(given.outputs, inner.answer)
        return Turn(_as_messages(content, trial.messages, "assistant"), given.outputs, given)

    return answer


def check_conversation(spec: ConversationTarget, world: WorldClass | None, available: Mapping[str, Any]) -> None:
    """Raise InputError or CallError for an example that lacks what the user, the target or the world needs."""
    given_messages(available)
    if isinstance(spec.user, ScriptedUser):
        script_of(spec.user, available)
    elif isinstance(spec.user, SimulatedUser):
        user_texts(spec.user, available)
    if world is not None:
        world.build(available, None).state()
    inner, known, asked = spec.target, {*Trial(available=available, number=0).agent_inputs}, set[str]()
    if isinstance(inner, HttpTarget):
        known |= {"messages", "message", "session", "world"}
        asked = asked.union(*map(placeholders, texts(inner.body)))
    elif isinstance(inner, ChatTarget):
        asked = asked.union(*map(placeholders, inner.templates.values()))
    for name in sorted(asked - known):
        raise InputError(f"the target asks for {{{name}}}, wanted one of {', '.join(sorted(known)) or 'no field'}")


def _remembered(agent: Agent, identity: str, *, charge: bool = False) -> Agent:
    """Return an agent whose turns are recorded as they end, and read when a conversation goes on."""

    async def answer(trial: Trial, turn: int) -> Turn:
        recorder = current()
        if recorder is None or recorder.ledger is None:
            return await agent(trial, turn)
        request = {"run": recorder.subject_id, "trial": trial.number, "turn": turn, "messages": trial.messages}
        key = call_key(identity, request, trial.repeat(turn), APPLICATION)
        if (row := await recorder.ledger.find(key)) is not None and row.response is not None:
            return await _again(trial, recorder, row, charge)
        n_calls, started_at, began = len(trial.world.calls) if trial.world else 0, now(), time.perf_counter()

        async def made() -> tuple[Turn, CallRow]:
            turned = await agent(trial, turn)
            latency = time.perf_counter() - began if turned.answer.latency_s is None else turned.answer.latency_s
            turned = turned._replace(answer=turned.answer._replace(latency_s=latency))
            kept = {
                "messages": turned.messages,
                "returned": _kept(turned.returned),
                "calls": trial.world.calls[n_calls:] if trial.world else [],
                "version": turned.answer.application_version,
            }
            row = CallRow(
                call_id=recorder.request.call_id if charge and recorder.request else new_id("call"),
                call_key=key,
                kind=APPLICATION if charge else TURN,
                experiment_id=recorder.experiment_id,
                subject_id=recorder.subject_id,
                connection=APPLICATION if charge else TURN,
                base_url=identity if charge else "",
                model="",
                request="{}",
                response=to_json(kept, mend=True),
                repeat=trial.repeat(turn),
                status="ok",
                reusable=True,
                attempts=turned.answer.attempts,
                tokens_in=turned.answer.tokens_in,
                tokens_out=turned.answer.tokens_out,
                cost_usd=turned.answer.cost_usd if charge else 0.0,
                estimated_usd=recorder.request.estimated_usd if charge and recorder.request else None,
                latency_s=latency,
                started_at=started_at,
            )
            keep = recorder.store if charge else recorder.keep  # a function's turn is no call that counts
            keep(row)
            recorder.ledger.add(row)  # type: ignore[union-attr]  # it is there
            return turned, row

        if not charge:
            turned, _ = await made()
            recorder.keep_for_reuse()
            return turned
        async with charged(recorder, identity) as settle:
            turned, row = await made()
            settle(row.cost_usd)
        recorder.answered.append(AnsweredCall(row))
        return turned

    return answer


async def _again(trial: Trial, recorder: Recorder, row: CallRow, charge: bool) -> Turn:
    """Return a turn that was made before, after its tools were called again on the world of this trial."""
    kept = json.loads(row.response or "{}")
    for name, given in kept["calls"] if trial.world else ():
        await trial.world.call(name, given, is_replay=True)  # type: ignore[union-attr]  # it is there
    if charge:
        recorder.answered.append(AnsweredCall(row, cached=True))
    answer = Answer(None, latency_s=row.latency_s, cost_usd=row.cost_usd, application_version=kept["version"])
    return Turn(kept["messages"], kept["returned"], answer)


def _kept(returned: Any) -> Any:
    """Return what the path of `stop_at` needs of an answer."""
    return returned if isinstance(returned, Mapping | list) else None


def _is_true_at(returned: Any, path: str) -> bool:
    try:
        return bool(at_path(returned, path))
    except CallError:
        return False


def _as_messages(returned: Any, before: Sequence[Message], role: str) -> list[Message]:
    """Return what a function or an application answered as messages, without those that were there before.

    Answers are a text, a message, a list of messages, or an object with `messages`; messages are OpenAI's or
    LangChain's. Raise CallError `bad_return` for an answer that says nothing, or something else: it may have been paid.
    """
    value = _opened(returned)
    if isinstance(value, Mapping) and isinstance(value.get("messages"), list | tuple):
        value = value["messages"]
    elif isinstance(value, Mapping) and "role" not in value and "type" not in value:
        names = [*value] if len(value) == 1 else [name for name in TEXT_FIELDS if name in value]
        value = value[names[0]] if names else value
        value = _opened(value)
    if isinstance(value, str):
        value = [{"role": role, "content": value}]
    listed = value if isinstance(value, list | tuple) else [value]
    try:
        messages = checked_messages([_message(item) for item in listed])
    except (ValueError, TypeError) as error:
        wanted = "wanted a text, a message, or messages"
        raise CallError("bad_return", f"answered {short(returned)}, {wanted} ({error})") from None
    new = _after(messages, before)
    if not any(
        text_of(message).strip() or isinstance(message["content"], list) for message in new if message["role"] == role
    ):
        raise CallError("bad_return", f"answered nothing: {short(returned)}")
    return new


def _opened(value: Any) -> Any:
    """Return the fields of an object that has them, such as a model of pydantic's; anything else unchanged."""
    return value.model_dump() if hasattr(value, "model_dump") and not hasattr(value, "content") else value


def _message(item: Any) -> dict[str, Any]:
    """Return a message in OpenAI's shape. Raise TypeError for what is none."""
    if isinstance(item, str):
        return {"role": "assistant", "content": item}
    fields = item if isinstance(item, Mapping) else item.model_dump() if hasattr(item, "model_dump") else None
    if fields is None:
        raise TypeError(f"got {type(item).__name__}")
    kind = str(fields.get("role") or fields.get("type"))
    message: dict[str, Any] = {"role": _ROLES.get(kind, kind), "content": stored(fields.get("content"), "content")}
    if calls := fields.get("tool_calls"):
        message["tool_calls"] = [_call(call) for call in calls]
    return message | {name: fields[name] for name in ("tool_call_id", "name", "refusal") if fields.get(name)}


def _call(call: Any) -> dict[str, Any]:
    """Return a call in OpenAI's shape; LangChain's have the name and arguments themselves."""
    fields = dict(call) if isinstance(call, Mapping) else call.model_dump()
    if "function" in fields:
        return stored(fields, "tool_calls")  # type: ignore[no-any-return]
    function = {"name": fields.get("name"), "arguments": to_json(fields.get("args") or {}, mend=True)}
    return {"id": fields.get("id"), "type": "function", "function": function}


def _after(messages: list[Message], before: Sequence[Message]) -> list[Message]:
    """Return the messages that follow those that were there before: an agent may return all of them, or its own."""
    last = next((message for message in reversed(before) if message["role"] == "user"), None)
    said = [index for index, message in enumerate(messages) if last and message["role"] == "user"]
    if said and last is not None and text_of(messages[said[-1]]) == text_of(last):
        return messages[said[-1] + 1 :]
    return messages
