"""A small world of orders, agents that work in it, and users who speak to them."""

from typing import Any, Literal

from evalflows.specs.protocols import Message

ORDERS = {"A1": {"status": "paid", "total": 20.0}, "B2": {"status": "sent", "total": 5.0}}


class Shop:
    def __init__(self, state: dict[str, Any]) -> None:
        self.orders = state["orders"]

    def look_up(self, order: str) -> dict[str, Any]:
        """Return an order."""
        if order not in self.orders:
            raise ValueError(f"no order {order}")
        found: dict[str, Any] = self.orders[order]
        return found

    async def refund(self, order: str, reason: Literal["late", "damaged"] = "late") -> str:
        """Refund an order."""
        self.orders[order] |= {"status": "refunded", "reason": reason}
        return "done"

    def state(self) -> dict[str, Any]:
        return {"orders": self.orders}


class Closed(Shop):
    def __init__(self, state: dict[str, Any]) -> None:
        raise RuntimeError("the shop is closed")


class Unhinted:
    def look_up(self, order) -> str:  # type: ignore[no-untyped-def]
        """Return an order."""
        return str(order)

    def state(self) -> None:
        return None


class Unstorable(Shop):
    def state(self) -> Any:
        return object()


async def agent(messages: list[Message], world: Shop) -> list[Message]:
    """Refund what is asked for, with its result in between, and say so."""
    said = messages[-1]["content"]
    if "refund" not in said:
        return [*messages, {"role": "assistant", "content": "Which order?"}]
    order = said.split()[-1]
    world.look_up(order)
    return [*messages, {"role": "assistant", "content": await world.refund(order)}]


def echo(message: str, session: str) -> str:
    return f"{session[-2:]} {message}"


def silent(messages: list[Message]) -> str:
    return " "


def newest(inputs: Message, *, thread_id: str) -> Message:
    """An application as openevals calls it."""
    return {"role": "assistant", "content": f"to {inputs['content']}", "id": thread_id}


def user(trajectory: list[Message], *, turn_counter: int, **_: Any) -> Message | None:
    """A user as openevals calls it."""
    said = ["Hello", "Please refund A1", "Thanks [END]"]
    return {"role": "user", "content": said[turn_counter]} if turn_counter < len(said) else None


def is_refunded(messages: list[Message], state: dict[str, Any]) -> bool:
    return any(order["status"] == "refunded" for order in state["orders"].values())


def two(messages: list[Message], goal: str) -> str:
    return goal


async def asks_for_all(message: str, world: Shop, metadata: dict[str, Any], repetition: int) -> str:
    return f"{metadata['topic']} {repetition} {await world.refund(message.split()[-1])}"
