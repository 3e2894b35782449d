"""The folder of what evalflows keeps for a user, beside the stores."""

import os
from pathlib import Path


def home_root() -> Path:
    """Return the folder in EVALFLOWS_HOME, else ~/.evalflows."""
    return Path(os.environ.get("EVALFLOWS_HOME") or Path.home() / ".evalflows").absolute()
