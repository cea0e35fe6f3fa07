"""A stand-in for llama-server that starts at once: `/health`, `/slots` and the rest of what is
scraped. Run as a file; options that it does not know are ignored, as a wrapper's would be.

`--load S` answers 503 for so long, `--exit-after S` ends by itself with status 3, `--busy-file F`
makes a slot busy while the file exists, `--hang` ignores SIGTERM, `--mute` completes no prompt.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--load", type=float, default=0.0)
    parser.add_argument("--exit-after", type=float)
    parser.add_argument("--busy-file", default="")
    parser.add_argument("--hang", action="store_true")
    parser.add_argument("--mute", action="store_true")
    options, _ = parser.parse_known_args()
    ready_at = time.monotonic() + options.load

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if time.monotonic() < ready_at:
                self._answer(503, {"error": {"code": 503, "message": "Loading model"}})
                return
            is_busy = bool(options.busy_file) and os.path.exists(options.busy_file)
            slot = {"id": 0, "id_task": 7, "is_processing": is_busy, "n_ctx": 512}
            path = self.path.partition("?")[0]
            answers: dict[str, object] = {
                "/health": {"status": "ok"},
                "/slots": [slot],
                "/props": {"total_slots": 1, "model_path": "tiny.gguf", "is_sleeping": False},
                "/v1/models": {"data": [{"id": "tiny.gguf", "aliases": []}]},
                "/lora-adapters": [],
            }
            self._answer(200 if path in answers else 404, answers.get(path, {}))

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self._answer(500 if options.mute else 200, {})

        def _answer(self, status: int, content: object) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    if options.hang:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.exit_after is not None:
        threading.Timer(options.exit_after, lambda: os._exit(3)).start()
    server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
    sys.stdout.write(f"listening {os.environ.get('GREETING', '')}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
