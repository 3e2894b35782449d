"""Links from Prefect's artifacts to the pages of the dashboard."""

from evalflows.execution.server.addresses import dashboard_url
from evalflows.pages.links import Links, NoLinks
from evalflows.store.parquet import Store


def links_to_dashboard(store: Store) -> Links:
    """Return links to the dashboard of a store; none if its address is not known."""
    url = dashboard_url(store.layout.root)
    return NoLinks() if url is None else Links(url)
