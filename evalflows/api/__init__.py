"""The Python API, one file per capability."""

import evalflows.flows  # noqa: F401  # it sets what Prefect reads from the environment, before Prefect is imported
