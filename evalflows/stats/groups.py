"""Groups of vectors by direction: items that are alike, and items that are like no others."""

import numpy as np
import numpy.typing as npt

from evalflows.stats.arrays import FloatArray

MAX_LINKED = 4000
"""Most vectors that are grouped by all their pairs, in some 200 MB. Of more, a sample is; others join its groups."""
MEMBER_SHARE = 0.05
"""The share of a group's members that may be farther from its middle than an item that joins it."""

SHARED = 0.2
"""What two vectors are taken to have in common beside what differs from the mean."""
ROUNDING = 1e-9

IntArray = npt.NDArray[np.intp]


def groups(vectors: FloatArray, similarity: float, *, seed: int = 0) -> IntArray:
    """Return the group of each vector, shape (n,): 0 is the largest group; -1 for a vector that is like no other.

    `vectors` have length 1 and shape (n, d). Two are as similar as their cosine; or, if that is less, as the cosine of
    what differs from the mean of all, plus SHARED: in a narrow domain all vectors are close, and only what differs
    tells groups apart. Groups are joined while the mean similarity of their pairs is at least `similarity` (average
    linkage; Sokal & Michener 1958). Unlike density, this finds rare groups beside frequent ones, and forces nothing
    into a group. Of more than MAX_LINKED vectors a sample is grouped; any other joins the group whose middle is most
    similar, if it is as similar as nearly all of that group's members.
    """
    n = len(vectors)
    if n < 2:
        return np.full(n, -1, dtype=np.intp)
    from scipy.cluster.hierarchy import fcluster, linkage  # type: ignore[import-untyped, unused-ignore]  # late: slow
    from scipy.spatial.distance import pdist  # type: ignore[import-untyped, unused-ignore]

    rest = vectors - vectors.mean(axis=0)
    rest /= np.maximum(np.linalg.norm(rest, axis=1, keepdims=True), ROUNDING)
    linked = np.arange(n)
    if n > MAX_LINKED:
        linked = np.sort(np.random.default_rng(seed).choice(n, MAX_LINKED, replace=False))
    apart = pdist(vectors[linked], "sqeuclidean") / 2
    equal = apart < ROUNDING
    apart = np.maximum(apart, pdist(rest[linked], "sqeuclidean") / 2 - SHARED)
    apart[equal] = 0
    joined = fcluster(linkage(apart, "average"), 1 - similarity, "distance") - 1
    found = np.full(n, -1, dtype=np.intp)
    found[linked] = np.where(np.bincount(joined)[joined] > 1, joined, -1)
    others = np.setdiff1d(np.arange(n), linked)
    names = np.unique(found[found >= 0])
    if len(others) and len(names):
        alike = np.stack([_alike(vectors, rest, found == name) for name in names], axis=1)
        least = [np.quantile(alike[found == name, column], MEMBER_SHARE) for column, name in enumerate(names)]
        nearest = alike[others].argmax(axis=1)
        near = alike[others].max(axis=1) >= np.maximum(least, similarity)[nearest]
        found[others] = np.where(near, names[nearest], -1)
    return by_size(found)


def _alike(vectors: FloatArray, rest: FloatArray, members: npt.NDArray[np.bool_]) -> FloatArray:
    """Return the similarity of each vector to the middle of some, shape (n,)."""
    return np.minimum(vectors @ middle(vectors[members]), rest @ middle(rest[members]) + SHARED)


def middle(vectors: FloatArray) -> FloatArray:
    """Return the mean direction of vectors, shape (d,)."""
    total = vectors.sum(axis=0)
    return np.asarray(total / (np.linalg.norm(total) or 1.0))


def plane(vectors: FloatArray) -> FloatArray:
    """Return each vector's place in the two directions in which they vary most (Pearson 1901), shape (n, 2); 0 in a
    direction in which they do not vary. In each, the place farthest from the middle is positive."""
    rest = vectors - vectors.mean(axis=0) if len(vectors) else vectors
    left, sizes, _ = np.linalg.svd(rest, full_matrices=False)
    places = np.zeros((len(vectors), 2))
    count = min(2, len(sizes))
    places[:, :count] = left[:, :count] * sizes[:count]
    farthest = places[np.abs(places).argmax(axis=0), [0, 1]] if len(places) else np.ones(2)
    return np.where(np.abs(places) < ROUNDING, 0.0, places * np.where(farthest < 0, -1.0, 1.0))


def by_size(found: IntArray) -> IntArray:
    """Return the groups numbered by size, the largest first; of two as large, the one with the first item. -1 stays."""
    names, first, sizes = np.unique(found[found >= 0], return_index=True, return_counts=True)
    number = np.full(int(names.max(initial=-1)) + 2, -1, dtype=np.intp)  # the last is that of -1
    number[names[np.lexsort((first, -sizes))]] = np.arange(len(names))
    return number[found]
