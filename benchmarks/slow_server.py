"""Servers that answer after a while, for `benchmarks.connections`: a new one for each line of standard input."""

import random
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ANSWER = b'{"choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}]}'


def serve(seconds: float, protocol: str, knows_options: bool) -> None:
    """Start a new server for each line of stdin, in place of the one before, and print its port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = protocol

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            time.sleep(seconds * random.uniform(0.7, 1.3))
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(ANSWER)))
            self.end_headers()
            self.wfile.write(ANSWER)

        if knows_options:

            def do_OPTIONS(self) -> None:  # noqa: N802
                self.send_response(204)
                self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server: ThreadingHTTPServer | None = None
    for _ in sys.stdin:
        if server is not None:
            server.shutdown()
            server.server_close()
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        print(server.server_port, flush=True)


if __name__ == "__main__":
    serve(float(sys.argv[1]), sys.argv[2], sys.argv[3] == "1")
