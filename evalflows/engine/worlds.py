"""Worlds: objects that are built for one trial, whose methods are the tools of an agent; and their service by MCP."""

import asyncio
import inspect
import json
import random
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context, copy_context
from copy import deepcopy
from dataclasses import field
from functools import cache, wraps
from inspect import isawaitable
from typing import Any, NotRequired, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from evalflows.llm.wrapped import step
from evalflows.serving import serve_beside
from evalflows.specs.code_versions import fault_text
from evalflows.specs.columns import value_of
from evalflows.specs.dialogue import STATE, FaultSpec
from evalflows.specs.errors import CallError, InputError, describe, first_problem, names_to_choose, short
from evalflows.specs.frozen import dataclass
from evalflows.specs.reference import load
from evalflows.specs.target import ConversationTarget
from evalflows.specs.values import stored
from evalflows.store.records import to_json

NO_FAULT = FaultSpec()
INJECTED = "this tool failed; try again later"
"""The error of a fault that a spec asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldTool:
    """A method of a world as a tool."""

    name: str
    description: str
    arguments: TypeAdapter[dict[str, Any]]
    schema: Mapping[str, Any]
    """The JSON schema of its arguments."""

    @property
    def sent(self) -> dict[str, Any]:
        """The tool in OpenAI's format."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.schema)}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a call of a tool gave: JSON, or the text of an error."""

    value: Any = None
    error: str | None = None
    place: str | None = None
    """The error with the place in the user's code, for people: the agent must not see it."""

    @property
    def text(self) -> str:
        if self.error is not None:
            return f"error: {self.error}"
        return self.value if isinstance(self.value, str) else to_json(self.value, mend=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldClass:
    """The class of a target's world, with its tools and the faults that are asked for."""

    made: Callable[..., Any]
    reference: str
    tools: Mapping[str, WorldTool]
    takes_state: bool
    needs_state: bool
    state_path: str | None = None
    faults: Mapping[str, FaultSpec] = field(default_factory=dict)

    def build(self, available: Mapping[str, Any], seed: object) -> "World":
        """Return the world of one trial. Raise CallError `world_failed` if it cannot be built from the example."""
        state = self._state(available)
        if state is None and self.needs_state:
            wanted = self.state_path or f"inputs.{STATE} or metadata.{STATE}"
            raise CallError("world_failed", f"{self.reference} needs a state, wanted {wanted} in the example")
        arguments = () if state is None or not self.takes_state else (deepcopy(state),)
        try:
            built = self.made(*arguments)
        except Exception as error:
            raise CallError("world_failed", f"{self.reference} cannot be built: {fault_text(error)}") from error
        return World(of=self, held=built, seed=seed)

    def _state(self, available: Mapping[str, Any]) -> Any:
        if self.state_path is None:
            return next(
                (found[STATE] for place in ("inputs", "metadata") if STATE in (found := available[place])), None
            )
        try:
            return value_of(available, self.state_path, STATE)
        except InputError as error:
            raise CallError("world_failed", str(error)) from None


@dataclass(slots=True, kw_only=True)
class World:
    """The world of one trial. No other trial sees it."""

    of: WorldClass
    held: Any
    seed: object
    calls: list[tuple[str, Any]] = field(default_factory=list)
    """The tools that were called, with their arguments as given: called again, they lead to the same state."""
    context: Context = field(default_factory=copy_context)
    """That of the trial, in which its steps are recorded."""
    _times: Counter[str] = field(default_factory=Counter)

    async def call(self, name: str, given: Any, *, is_replay: bool = False) -> ToolResult:
        """Call a tool with its arguments, a mapping or JSON. What is wrong with the call is a result too."""
        slow_s, known = self.begin(name, given)
        with step("tool", name, given) as note:
            if slow_s and not is_replay:
                await asyncio.sleep(slow_s)
            result = known or await self._result(name, given)
            note |= {"outputs": result.value} | (
                {} if result.error is None else {"error": result.place or result.error}
            )
        return result

    def begin(self, name: str, given: Any) -> tuple[float, ToolResult | None]:
        """Note a call. Return by how many seconds it is slower, and its result if that is known without the world."""
        self.calls.append((name, given))
        self._times[name] += 1
        if name not in self.of.tools:
            return 0.0, ToolResult(error=f"no tool {name!r}, wanted {names_to_choose(name, self.of.tools)}")
        fault = self.of.faults.get(name, NO_FAULT)
        drawn = random.Random(f"{self.seed}/{name}/{self._times[name]}")
        fails, is_slow = drawn.random() < fault.error, drawn.random() < fault.slow
        return fault.slow_s if is_slow else 0.0, ToolResult(error=INJECTED) if fails else None

    async def _result(self, name: str, given: Any) -> ToolResult:
        try:
            arguments = json.loads(given or "{}") if isinstance(given, str) else given
            checked = self.of.tools[name].arguments.validate_python(arguments)
        except ValidationError as error:
            return ToolResult(error=first_problem(error, "arguments"))
        except ValueError as error:
            return ToolResult(error=f"arguments: no JSON: {error}")
        try:
            returned = await asyncio.to_thread(getattr(self.held, name), **checked)  # a slow one holds nobody up
            value = await returned if isawaitable(returned) else returned
        except Exception as error:  # a tool that refuses says so
            return ToolResult(error=describe(error), place=fault_text(error))
        return ToolResult(value=self.as_stored(name, value))

    def as_stored(self, name: str, value: Any) -> Any:
        try:
            return stored(value, f"tool {name!r}")
        except InputError as error:
            raise CallError("world_failed", str(error)) from error

    def state(self) -> Any:
        """Return the state at the end. Raise CallError `world_failed` for one that is no JSON."""
        try:
            return stored(getattr(self.held, STATE)(), STATE)
        except Exception as error:
            raise CallError("world_failed", f"{self.of.reference}: {STATE}(): {fault_text(error)}") from error


class WorldView:
    """A world as a function gets it: the object itself, whose tools are recorded and have their faults."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._world.held, name)
        if name not in self._world.of.tools:
            return found

        def begin(arguments: Mapping[str, Any]) -> float:
            slow_s, known = self._world.begin(name, self._world.as_stored(name, arguments))
            if known is not None:
                raise ToolError(known.error)
            return slow_s

        signature = inspect.signature(found)

        @wraps(found)
        def call(*args: Any, **kwargs: Any) -> Any:
            arguments = signature.bind(*args, **kwargs).arguments
            with step("tool", name, arguments) as note:
                time.sleep(begin(arguments))
                note["outputs"] = found(*args, **kwargs)
            return note["outputs"]

        @wraps(found)
        async def call_later(*args: Any, **kwargs: Any) -> Any:
            arguments = signature.bind(*args, **kwargs).arguments
            with step("tool", name, arguments) as note:
                await asyncio.sleep(begin(arguments))
                note["outputs"] = await found(*args, **kwargs)
            return note["outputs"]

        return call_later if inspect.iscoroutinefunction(found) else call


class ToolError(Exception):
    """A fault that a spec asks for, as a tool would raise it."""


def world_class(spec: ConversationTarget) -> WorldClass | None:
    """Return the class of a target's world; None without one.

    Raise InputError for a class that cannot be used: without tools or `state`, or with a method without type hints.
    """
    if spec.world is None:
        return None
    where, made = f"target {spec.name!r}: world {spec.world!r}", load(spec.world)
    if not inspect.isclass(made) or not callable(getattr(made, STATE, None)):
        raise InputError(f"{where}: got {short(made)}, wanted a class with a method {STATE}() that returns JSON")
    methods = {
        name: method
        for name, method in inspect.getmembers(made, inspect.isfunction)
        if not name.startswith("_") and name != STATE
    }
    if not methods:
        raise InputError(f"{where}: got no method, wanted some with type hints and docstrings: they are the tools")
    tools = {name: _tool(name, method, f"{where}: {name}") for name, method in methods.items()}
    for name in spec.faults:
        if name not in tools:
            raise InputError(f"target {spec.name!r}: faults: got {name!r}, wanted {names_to_choose(name, tools)}")
    taken = [p for p in inspect.signature(made).parameters.values() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    return WorldClass(
        made=made,
        reference=spec.world,
        tools=tools,
        takes_state=bool(taken),
        needs_state=any(parameter.default is parameter.empty for parameter in taken),
        state_path=spec.state,
        faults=spec.faults,
    )


def _tool(name: str, method: Callable[..., Any], where: str) -> WorldTool:
    try:
        hints = get_type_hints(method, include_extras=True)
    except Exception as error:  # a hint may name anything
        raise InputError(f"{where}: its type hints cannot be read: {fault_text(error)}") from error
    fields: dict[str, Any] = {}
    for parameter in [*inspect.signature(method).parameters.values()][1:]:
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise InputError(f"{where}: got {parameter}, wanted parameters with names")
        if parameter.name not in hints:
            raise InputError(f"{where}: {parameter.name} has no type hint")
        is_needed, hint = parameter.default is parameter.empty, hints[parameter.name]
        fields[parameter.name] = hint if is_needed else NotRequired[hint]
    if not (description := inspect.getdoc(method)):
        raise InputError(f"{where}: has no docstring, wanted one that says what the tool does")
    made: Any = TypedDict  # a function of the name and the fields, which are a method's
    named = made(name, fields)
    named.__pydantic_config__ = ConfigDict(extra="forbid")
    try:
        arguments: TypeAdapter[dict[str, Any]] = TypeAdapter(named)
        schema = {key: part for key, part in arguments.json_schema().items() if key != "title"}
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        raise InputError(f"{where}: its type hints have no JSON schema: {fault_text(error)}") from error
    return WorldTool(name=name, description=description, arguments=arguments, schema=schema)


@dataclass(slots=True)
class _Served:
    """The worlds that applications reach now, by the secret part of their address, and the server's own address."""

    worlds: dict[str, World] = field(default_factory=dict)
    address: str | None = None


@contextmanager
def serve_world(world: World) -> Iterator[str]:
    """Yield the address of a world's tools, by MCP over HTTP on this machine, while it is in use.

    Raise InputError if the extra `mcp` is not installed.
    """
    served, secret = _server(), secrets.token_urlsafe(16)
    served.worlds[secret] = world
    try:
        yield f"{served.address}/{secret}/mcp"
    finally:
        del served.worlds[secret]


def require_mcp(where: str) -> None:
    """Raise InputError if the package that serves worlds is not installed."""
    try:
        import mcp.server.lowlevel  # noqa: F401
    except ImportError:
        raise InputError(f"{where}: world_at needs a package: pip install 'evalflows[mcp]'") from None


@cache
def _server() -> _Served:
    """Start the server of this process, once, on a free port of this machine; it ends with the process."""
    from mcp.server.lowlevel import Server
    from mcp.server.transport_security import TransportSecuritySettings
    from mcp.types import CallToolResult, ListToolsResult, TextContent, Tool

    served = _Served()

    def world_of(context: Any) -> World:
        world = served.worlds.get(context.request.path_params["trial"])
        if world is None:
            raise ValueError("the trial of this address is over")
        return world

    async def list_tools(context: Any, _: Any) -> Any:
        tools = world_of(context).of.tools.values()
        return ListToolsResult(
            tools=[Tool(name=tool.name, description=tool.description, input_schema=dict(tool.schema)) for tool in tools]
        )

    async def call_tool(context: Any, params: Any) -> Any:
        world = world_of(context)
        calling = world.call(params.name, params.arguments or {})
        result = await asyncio.get_running_loop().create_task(calling, context=world.context)
        return CallToolResult(content=[TextContent(type="text", text=result.text)], is_error=result.error is not None)

    server: Any = Server("evalflows-world", on_list_tools=list_tools, on_call_tool=call_tool)
    application = server.streamable_http_app(
        streamable_http_path="/{trial}/mcp",
        json_response=True,
        stateless_http=True,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    served.address = serve_beside(application)
    return served
