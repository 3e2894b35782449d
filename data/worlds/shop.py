"""A small shop: orders, refunds and exchanges, as a world for agents. Its rules are in data/worlds/shop_policy.md.

The tools do what they are asked, also where the rules forbid it: to keep them is the agent's part.
"""

from datetime import date
from typing import Any, Literal

PRODUCTS: dict[str, dict[str, Any]] = {
    "mug": {"price": 12.0, "stock": 40},
    "kettle": {"price": 49.0, "stock": 0},
    "teapot": {"price": 35.0, "stock": 7},
    "lamp": {"price": 60.0, "stock": 3},
    "chair": {"price": 140.0, "stock": 2},
    "poster": {"price": 12.0, "stock": 100},
}

Order = dict[str, Any]


class Shop:
    """The shop of one trial. `state` has `today` and `orders`; what the tools change is in `state()` at the end."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.today = date.fromisoformat(state.get("today", "2026-11-28"))
        self.orders: dict[str, Order] = state["orders"]
        self.stock = {name: product["stock"] for name, product in PRODUCTS.items()} | state.get("stock", {})
        self.handed_over: list[str] = []

    def state(self) -> dict[str, Any]:
        return {"orders": self.orders, "stock": self.stock, "handed_over": self.handed_over}

    def find_orders(self, email: str) -> list[str]:
        """Return the numbers of a customer's orders, by the customer's email address."""
        return [number for number, order in self.orders.items() if order["email"].lower() == email.lower()]

    def get_order(self, order: str) -> Order:
        """Return an order: email, product, status, price paid, dates, address, and whether it was a final sale."""
        return self._order(order)

    def days_since_delivery(self, order: str) -> int | None:
        """Return how many days ago an order was delivered; null if it was not."""
        delivered = self._order(order).get("delivered")
        return None if delivered is None else (self.today - date.fromisoformat(delivered)).days

    def get_product(self, product: str) -> dict[str, Any]:
        """Return the price of a product, and how many are in stock."""
        if product not in PRODUCTS:
            raise ValueError(f"no product {product!r}; there are {', '.join(PRODUCTS)}")
        return {"price": PRODUCTS[product]["price"], "stock": self.stock[product]}

    def list_products(self) -> list[str]:
        """Return the names of all products."""
        return [*PRODUCTS]

    def cancel_order(self, order: str) -> str:
        """Cancel an order and pay it back."""
        found = self._order(order)
        found["status"] = "cancelled"
        self.stock[found["product"]] += 1
        return "cancelled"

    def refund_order(self, order: str, reason: Literal["late", "damaged", "unwanted", "wrong item"]) -> str:
        """Pay back what was paid for an order."""
        self._order(order).update(status="refunded", reason=reason)
        return "refunded"

    def exchange(self, order: str, product: str) -> str:
        """Send another product in place of the one that was ordered."""
        found, other = self._order(order), self.get_product(product)
        if not other["stock"]:
            raise ValueError(f"{product} is out of stock")
        self.stock[product] -= 1
        found.update(status="exchanged", exchanged_for=product)
        return "exchanged"

    def change_address(self, order: str, address: str) -> str:
        """Change the address that an order is sent to."""
        self._order(order)["address"] = address
        return "changed"

    def send_return_label(self, order: str) -> str:
        """Send the customer a label with which the product can be sent back."""
        self._order(order)["label_sent"] = True
        return "sent"

    def apply_voucher(self, order: str, code: str) -> str:
        """Take a voucher off the price of an order."""
        if code != "WELCOME10":
            raise ValueError(f"no voucher {code!r}")
        found = self._order(order)
        found.update(voucher=code, price=round(found["price"] * 0.9, 2))
        return f"the price is now {found['price']:.2f}"

    def hand_over(self, order: str, why: str) -> str:
        """Hand the customer over to a person of the shop, for what the rules do not let you do."""
        self.handed_over.append(self._number(order))
        return "a person will write within a day"

    def _order(self, order: str) -> Order:
        return self.orders[self._number(order)]

    def _number(self, order: str) -> str:
        number = order.strip().upper().removeprefix("#")
        if number not in self.orders:
            raise ValueError(f"no order {order!r}")
        return number
