"""Import at once what the first rows that are written need: Arrow imports pandas when it first gets a list."""

import pandas  # noqa: F401
import pyarrow.compute  # noqa: F401
