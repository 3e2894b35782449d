"""Put the root of the repository on the path: the benchmarks are not installed."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
