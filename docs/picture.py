"""Draw docs/demo.svg, what the demo in the store prints: `.venv/bin/python docs/picture.py` after `make demo`."""

import io
import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 100

console = Console(record=True, width=WIDTH, file=io.StringIO(), highlight=False)
in_colour = {**os.environ, "COLUMNS": str(WIDTH), "FORCE_COLOR": "1", "TTY_COMPATIBLE": "1"}
for name in ("demo", "demo-judge"):
    command = [str(Path(sys.executable).with_name("evalflows")), "show", name]
    printed = subprocess.run(command, env=in_colour, check=True, stdout=subprocess.PIPE, text=True).stdout
    console.print(f"$ evalflows show {name}", style="bold")
    console.print(Text.from_ansi(printed))
    console.print()
svg = console.export_svg(title="evalflows")
Path(__file__).with_name("demo.svg").write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S))  # no web fonts
