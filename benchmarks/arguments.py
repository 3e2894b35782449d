"""The arguments that each program takes: `--smallest`, with which tests see whether it still runs."""

from argparse import ArgumentParser


def new_parser(name: str, doc: str | None) -> ArgumentParser:
    """Return the parser of a program, which is described by the first paragraph of its docstring."""
    parser = ArgumentParser(prog=f"python -m benchmarks.{name}", description=(doc or "").partition("\n\n")[0])
    parser.add_argument("--smallest", action="store_true", help="take seconds: to see whether it runs, not for figures")
    return parser
