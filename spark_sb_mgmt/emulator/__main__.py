"""`python -m spark_sb_mgmt.emulator`: the emulator as a program."""

from __future__ import annotations

import argparse
import gc
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from spark_sb_mgmt.emulator.server.server import Server, ServerSettings
from spark_sb_mgmt.errors import SbMgmtError

# Python looks for garbage each time that so many objects have come about. By default that is several times for each batch of messages, and
# what it looks through are messages, which stay.
_OBJECTS_BETWEEN_COLLECTIONS = 50_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or Ctrl-C. What cannot be served is one line on standard error, and 1."""
    given = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    settings = ServerSettings(
        host=given.host,
        port=given.port,
        tls_port=given.tls_port,
        websocket_port=given.websocket_port,
        cert=given.cert,
        key=given.key,
        data_dir=given.data_dir,
        accept_jwt=given.accept_jwt,
    )
    try:
        server = Server(given.config, settings)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: server.loop.stop())
        gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
        print(f"ready {server.connection_string}", flush=True)
        server.run()
    except SbMgmtError as error:
        print(f"sbmgmt emulator: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m spark_sb_mgmt.emulator", description="An Azure Service Bus for development and tests.")
    parser.add_argument("--config", type=Path, required=True, help="entities, in the format of the official emulator's Config.json")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s, this machine only)")
    parser.add_argument("--port", type=_port, default=5672, help="AMQP over plain TCP (default: %(default)s); 0 picks a free port")
    parser.add_argument("--tls-port", type=_port, help="AMQP over TLS; needs --cert and --key")
    parser.add_argument("--cert", type=Path, help="PEM file with the server's certificate chain")
    parser.add_argument("--key", type=Path, help="PEM file with the certificate's private key")
    parser.add_argument("--websocket-port", type=_port, help="AMQP over WebSocket, with TLS too if there is a certificate")
    parser.add_argument("--data-dir", type=Path, help="keep the state here, across restarts (default: in memory)")
    parser.add_argument("--accept-jwt", action="store_true", help="accept any unexpired JSON web token, unverified, for every right")
    return parser


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"{port} is no port: from 0 to 65535")
    return port


if __name__ == "__main__":
    sys.exit(main())
