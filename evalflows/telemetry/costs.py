"""The costs of model calls of production that came without one: the tokens, at the price list's price of the model."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace

from evalflows.llm.prices import Tokens, listed_price
from evalflows.specs.attribute_aliases import LISTED_COST
from evalflows.store.records import to_json
from evalflows.store.trace_records import ObservationRow
from evalflows.telemetry.conventions import Fields

_OF_TOKENS = ("oken", "sage")
"""What the attributes of an observation with tokens contain, by any convention."""


def with_listed_costs(rows: Iterable[ObservationRow]) -> Iterator[ObservationRow]:
    """Yield rows; one with a model, tokens in and out, and no cost has that of the price list as an attribute.

    The price is that of the provider that the row names, else that of the first provider with such a model.
    """
    for row in rows:
        cost = (
            _cost(row) if any(mark in row.attributes or mark in (row.contents or "") for mark in _OF_TOKENS) else None
        )
        if cost is not None:
            attributes = json.loads(row.attributes) | {LISTED_COST: cost}
            row = replace(row, attributes=to_json(attributes, mend=True))
        yield row


def _cost(row: ObservationRow) -> float | None:
    fields = Fields.of(row)
    model, tokens_in, tokens_out = (
        fields.text("model"),
        fields.whole_number("tokens_in"),
        fields.whole_number("tokens_out"),
    )
    if not model or tokens_in is None or tokens_out is None or fields.number("cost_usd") is not None:
        return None
    price = listed_price(model, provider=fields.text("provider"))
    return None if price is None else price.cost(Tokens(tokens_in, None, tokens_out))
