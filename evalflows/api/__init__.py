"""The Python API, one file per capability."""
