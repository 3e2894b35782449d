"""How long the trials of faults take. EVALFLOWS_LONG_TRIALS=1 makes them as those in docs/reference/store.md."""

import os

IS_LONG = bool(os.environ.get("EVALFLOWS_LONG_TRIALS"))
KILLS = 30 if IS_LONG else 5
OUTAGE_S = 30.0 if IS_LONG else 3.0
READING_S = 60.0 if IS_LONG else 8.0
REPEATS = 20 if IS_LONG else 2
