"""Receive production traces from the command line."""

from functools import partial

import click

from evalflows.cli.errors import one_line_errors
from evalflows.cli.listening import listening
from evalflows.cli.terminal import echo

MEGABYTE = 1 << 20

GRACE_S = 2
"""Seconds that requests may take to end when the receiver is stopped; clients send again what was not answered."""


@click.command("receive")
@listening(port=4318, token_variable="EVALFLOWS_RECEIVER_TOKEN", clients="clients must send")
@click.option(
    "--max-body",
    type=click.FloatRange(0, 1024, min_open=True),
    default=20,
    show_default=True,
    metavar="MB",
    help="Largest request, as sent and after decompression.",
)
@click.option("--verbose", is_flag=True, help="Show the traceback of an error.")
def receive(host: str, port: int, token: str | None, max_body: float, verbose: bool) -> None:
    """Receive production traces over HTTP, from OpenTelemetry's exporters.

    A request is answered 200 when its spans are on disk; a second later they are in the store. Ctrl-C or SIGTERM ends
    it.
    """
    with one_line_errors(verbose):
        from evalflows.receiver.application import Limits, Receiver
        from evalflows.serving.http import listen, serve, url_of
        from evalflows.serving.tokens import usable_token
        from evalflows.store.parquet import Store

        token = usable_token(token)
        body = int(max_body * MEGABYTE)
        with listen(host, port, has_token=bool(token)) as listener:
            store = Store()
            receiver = Receiver(store, token, Limits(body=body, held=max(Limits().held, 4 * body)))
            url = url_of(host, listener)
            announce = partial(_announce, url, store.layout.root, has_token=bool(token))
            served, finish = receiver.application(), receiver.stop
            serve(served, listener, announce, grace_s=GRACE_S, stop=receiver.begin_to_stop, finish=finish)
        echo("stopped; all that was accepted is in the store")


def _announce(url: str, root: str, *, has_token: bool) -> None:
    echo(f"receiving traces and logs of OpenTelemetry at {url}, into {root}")
    echo("in the application's environment:")
    echo(f"  export OTEL_EXPORTER_OTLP_ENDPOINT={url} OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf")
    if has_token:
        echo('  export OTEL_EXPORTER_OTLP_HEADERS="Authorization=Bearer%20TOKEN"')
