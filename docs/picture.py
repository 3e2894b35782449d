"""Draw docs/demo.svg from the demo in the store: `.venv/bin/python docs/picture.py` after `make demo`."""

import io
import re
from pathlib import Path

from rich.console import Console

from evalflows.cli import compare, gates, show
from evalflows.reports.comparison import comparison_report
from evalflows.reports.decisions import decisions_of
from evalflows.reports.pages_as_text import experiments_report
from evalflows.reports.results import results_of
from evalflows.store.queries.lookup import comparison_beside, find_experiments
from evalflows.store.store import Store

console = Console(record=True, width=120, file=io.StringIO(), highlight=False)
show.console = compare.console = gates.console = lambda: console
for name in ("demo", "demo-judge"):
    console.print(f"$ evalflows run data/experiments/{name}.yaml", style="bold")
    experiments = find_experiments(Store(), name)
    show.print_experiments(experiments_report(Store(), experiments, results_of(Store(), experiments)))
    gates.print_decisions(decisions_of(Store(), experiments))
    if compared := comparison_beside(Store(), experiments):
        console.print()
        compare.print_comparison(comparison_report(Store(), compared))
    console.print()
svg = console.export_svg(title="evalflows")
Path(__file__).with_name("demo.svg").write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S))  # no web fonts
