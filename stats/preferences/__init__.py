"""Statistics of pairwise preferences: ratings, shares, intransitive cycles, length control."""
