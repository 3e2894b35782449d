"""Sentences about failures with planted modes, each in many words, and some that fit none."""

import random
from pathlib import Path

import yaml

_WORDS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
TERMS: list[str] = [*_WORDS["modes"]]


def planted(count: int, seed: int = 0) -> tuple[list[str], list[str | None]]:
    """Return sentences, and the planted term of each; None for one in ten, which fit no mode."""
    rng = random.Random(seed)
    terms: list[str | None] = [None] * (count // 10)
    for term, mode in _WORDS["modes"].items():
        terms += [term] * round(mode["share"] * count)
    rng.shuffle(terms)
    return [_sentence(term, rng) for term in terms], terms


def _sentence(term: str | None, rng: random.Random) -> str:
    if term is None:
        first, second, third = rng.sample(_WORDS["things"].split(), 3)
        return f"{first} {rng.choice(_WORDS['deeds'])} {second}, {third}"
    mode, ending = _WORDS["modes"][term], rng.choice([*_WORDS["endings"], f" (order {rng.randrange(9000)})"])
    return rng.choice(_WORDS["openings"]) + rng.choice(mode["frames"]).format(rng.choice(mode["rests"])) + ending
