"""Compatibility layers: other systems' APIs on top of this one, so that a program only has to change its imports."""
