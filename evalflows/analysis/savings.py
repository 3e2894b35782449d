"""What batches and providers' caches did for experiments: what they saved, and how many answers have no latency."""

from collections.abc import Sequence

from evalflows.specs.frozen import dataclass
from evalflows.store.sql import ask
from evalflows.store.store import Store

LEAST_SHARE = 0.01
"""What is saved at least, as a share of the cost; less may be due to rounding."""

_BATCHED = """
select experiment_id, connection, model, count(*) filter (cost_usd is not null and tokens_in is not null),
       sum(tokens_in) filter (cost_usd is not null), sum(tokens_out) filter (cost_usd is not null), sum(cost_usd),
       count(*) filter (batch_id is not null and evaluator is null)
from calls where is_one_of(experiment_id, $1) and (batch_id is not null or tokens_cached > 0) group by all
"""


@dataclass(frozen=True, slots=True)
class Batched:
    """What batches and a provider's cache did for an experiment."""

    answers: int = 0  # calls of its target that batches have answered, of which no latency is known
    usd_saved: float | None = None  # None if less than a hundredth, or not known


def batched(store: Store, experiments: Sequence[str]) -> dict[str, Batched]:
    """Return what batches and the provider's cache did for those of the experiments that had any, by id.

    Saved is what calls would have cost more directly and with nothing from a cache, by the average call.
    """
    (rows,) = ask(store, (_BATCHED, [list(experiments)]))
    found: dict[str, Batched] = {}
    for experiment, name, model, count, into, out, cost, answers in rows:
        before = found.get(experiment, Batched())
        saved = _saved(store, experiment, name, model, count, into, out, cost) if count else None
        total = before.usd_saved if saved is None else saved + (before.usd_saved or 0.0)
        found[experiment] = Batched(before.answers + answers, total)
    return found


def _saved(
    store: Store, experiment: str, name: str, model: str, count: int, into: int, out: int | None, cost: float
) -> float | None:
    from evalflows.llm.connections import resolve  # late, as the next: most experiments have no such calls
    from evalflows.llm.prices import Tokens, price_of
    from evalflows.store.row_specs import experiment_spec

    spec = experiment_spec(store.read("experiments", experiment)[0])
    price = price_of(resolve(name, spec.connections), model)
    direct = price.cost(Tokens(into // count, None, (out or 0) // count)) if price else None
    saved = None if direct is None else count * direct - cost
    return saved if saved is not None and saved >= LEAST_SHARE * cost else None
