"""The benchmarks are no package that is installed: they are found from the repository's root."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
