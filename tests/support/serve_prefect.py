"""Prefect's server as our local one is, at a port of this machine: `python serve_prefect.py PORT`."""

import sys

import uvicorn
from prefect.server.api.server import create_app

from evalflows.prefect_server import HOST, adapt_prefect

if __name__ == "__main__":
    adapt_prefect()
    uvicorn.run(create_app(final=True), host=HOST, port=int(sys.argv[1]), timeout_keep_alive=60, log_level="warning")
