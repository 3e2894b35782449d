"""What calls would have cost if each had been made directly, with nothing from a provider's cache."""

from collections import defaultdict
from collections.abc import Sequence

from evalflows.store.row_specs import experiment_spec
from evalflows.store.sql import ask
from evalflows.store.store import Store

LEAST_SHARE = 0.01
"""What is saved at least, as a share of the cost; less may be due to rounding."""

_SAVED = """
select experiment_id, connection, base_url, model, count(*), sum(tokens_in), sum(tokens_out), sum(cost_usd)
from calls where is_one_of(experiment_id, $1) and cost_usd is not null and tokens_in is not null
and (batch_id is not null or tokens_cached > 0) group by all
"""


def usd_without_savings(store: Store, experiments: Sequence[str]) -> dict[str, float]:
    """Return how much more USD the calls of each experiment would have cost directly and without a cache, by its id.

    Experiments of which that is not known, or less than a hundredth, are left out. Prices for long prompts count by the
    average call.
    """
    (rows,) = ask(store, (_SAVED, [list(experiments)]))
    if not rows:
        return {}
    from evalflows.llm.connections import resolve
    from evalflows.llm.prices import Tokens, price_of

    more: defaultdict[str, float] = defaultdict(float)
    for experiment, name, _, model, count, into, out, cost in rows:
        spec = experiment_spec(store.read("experiments", experiment)[0])
        price = price_of(resolve(name, spec.connections), model)
        direct = price.cost(Tokens(into // count, None, (out or 0) // count)) if price else None
        if direct is not None and count * direct - cost >= LEAST_SHARE * cost:
            more[experiment] += count * direct - cost
    return dict(more)
