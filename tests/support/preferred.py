"""The judgements of a comparison in memory, as `evalflows.analysis.preferences` reads them from the store."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from evalflows.analysis.preferences import Preferences

POINTS = {"left": 1.0, "tie": 0.5, "half": 0.5, "flipped": 0.5, "right": 0.0}


@dataclass(frozen=True)
class Pair:
    """Two runs of one example, and what was said: `first` with the left answer shown first, `second` with the right.

    Each is left, right or tie; None if that order was not judged. `missing` has no verdict, whatever was said.
    """

    example: str
    first: str | None = None
    second: str | None = None
    left: str = "a"
    right: str = "b"
    repetition: int = 0
    longer: float = float("nan")
    agreement: float = float("nan")
    cluster: str | None = None
    asked: bool = True
    missing: bool = False
    status: str = "scored"

    @property
    def said(self) -> dict[str, str]:
        return {side: one for side, one in (("left", self.first), ("right", self.second)) if one is not None}

    @property
    def cluster_id(self) -> str:
        return f"cluster {self.cluster}" if self.cluster else f"example {self.example}"


def agreed(example: str, winner: str, **fields: Any) -> Pair:
    """A pair of which both orders say the same."""
    return Pair(example, winner, winner, **fields)


def preferences(pairs: Iterable[Pair], metric: str = "m") -> Preferences:
    """One metric of a comparison of these pairs."""
    given = list(pairs)
    outcomes = pd.DataFrame([_outcome(pair) for pair in given], columns=_OUTCOME)
    judgements = pd.DataFrame(
        [
            _judgement(pair, side, winner) | {"metric": metric}
            for pair in given
            if _status(pair) == "scored"
            for side, winner in pair.said.items()
        ],
        columns=["metric", *_JUDGEMENT],
    )
    return Preferences(metric=metric, evaluator=metric, outcomes=outcomes, judgements=judgements)


_OUTCOME = ["example_id", "repetition", "left", "right", "points", "discrete", "preference", "weight", "status"]
_OUTCOME += ["outcome", "consistency", "asked", "longer", "shown", "order_status", "agreement", "cluster_id"]
_JUDGEMENT = ["example_id", "left", "right", "winner", "points", "left_score", "shown_first", "order_status", "weight"]
_JUDGEMENT += ["orders", "asked", "cluster_id"]


def _of(pair: Pair) -> dict[str, Any]:
    names = {"example_id": pair.example, "left": pair.left, "right": pair.right}
    return names | {"asked": pair.asked, "cluster_id": pair.cluster_id}


def _status(pair: Pair) -> str:
    return "missing" if pair.missing else pair.status


def _judgement(pair: Pair, side: str, winner: str) -> dict[str, Any]:
    columns = {"winner": winner, "points": POINTS[winner], "left_score": float("nan"), "orders": len(pair.said)}
    return _of(pair) | columns | {"shown_first": side, "order_status": "known", "weight": 1.0}


def _outcome(pair: Pair) -> dict[str, Any]:
    said, is_scored = list(pair.said.values()), _status(pair) == "scored"
    outcome = (("half" if "tie" in said else "flipped") if len({*said}) > 1 else said[0]) if is_scored else None
    points = float("nan") if outcome is None else POINTS[outcome]
    agrees = outcome if outcome in ("half", "flipped") else "consistent"
    return _of(pair) | {
        "repetition": pair.repetition,
        "points": points,
        "discrete": points,
        "preference": float("nan"),
        "weight": 1.0,
        "consistency": agrees if is_scored and len(said) == 2 else None,
        "order_status": float("nan"),
        "status": _status(pair),
        "outcome": outcome,
        "longer": pair.longer,
        "shown": 0.0 if len(said) == 2 else 1.0 if pair.first else -1.0,
        "agreement": pair.agreement,
    }
