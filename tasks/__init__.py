"""The steps of the flows: each takes ids and specs, does one effect, and returns an id."""
