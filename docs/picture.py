"""Draws docs/demo.svg from the demo that is in the store: `.venv/bin/python docs/picture.py` after `make demo`."""

import io
import re
from pathlib import Path

from rich.console import Console

from cli import look

console = Console(record=True, width=135, file=io.StringIO(), highlight=False)
look.console = lambda: console
console.print("$ evalflows run data/experiments/demo.yaml", style="bold")
look.print_experiments(look.find_experiments(look.Store(), "demo"))
svg = console.export_svg(title="evalflows")
Path(__file__).with_name("demo.svg").write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S))  # no web fonts
