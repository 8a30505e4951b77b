"""`python -m spark_sb_mgmt`: what may be asked, and one clear line when it cannot be done.

The one rule: the connection string comes from the environment; one that is typed stands in the shell's history.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Final

from spark_sb_mgmt.cli import commands
from spark_sb_mgmt.client import ManagementClient
from spark_sb_mgmt.emulator.__main__ import main as emulator
from spark_sb_mgmt.errors import SbMgmtError

CONNECTION_STRING: Final = "SBMGMT_CONNECTION_STRING"
_EXAMPLES: Final = f"""\
export {CONNECTION_STRING}='Endpoint=sb://...'
python -m spark_sb_mgmt peek orders --max 10
python -m spark_sb_mgmt peek 'orders/$DeadLetterQueue' --to dead-letters.parquet
python -m spark_sb_mgmt sessions orders.by-customer --state
python -m spark_sb_mgmt rules events/Subscriptions/audit
python -m spark_sb_mgmt purge orders --before 2026-01-31
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 0 when it was done, 1 when not, 2 when it was asked for wrongly."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments[:1] == ["emulator"]:
        return emulator(arguments[1:])
    given = parser().parse_args(arguments)
    connection_string = given.connection_string or os.environ.get(CONNECTION_STRING)
    if not connection_string:
        print(f"sbmgmt: set {CONNECTION_STRING}, or give --connection-string", file=sys.stderr)
        return 2
    try:
        client = ManagementClient.from_connection_string(connection_string, transport=given.transport, ca_file=given.ca_file)
        with client, client.entity(given.entity) as entity:
            status: int = given.run(entity, given)
            sys.stdout.flush()
            return status
    except BrokenPipeError:
        # Whoever read the table has seen enough, as `head` has. What is still to be written goes nowhere, or Python would complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (SbMgmtError, OSError) as error:
        print(f"sbmgmt: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("sbmgmt: interrupted", file=sys.stderr)
        return 130


def parser() -> argparse.ArgumentParser:
    """What may be asked."""
    whole = argparse.ArgumentParser(
        prog="python -m spark_sb_mgmt",
        description="The management side of Azure Service Bus, without Spark.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    several = whole.add_subparsers(required=True, metavar="command")
    several.add_parser("emulator", help="run the embedded Service Bus (see emulator --help)")
    peek = _command(several, "peek", commands.peek, "look at messages: as a table, or all of them into a Parquet file")
    peek.add_argument("--from", dest="from_sequence_number", type=int, default=0, help="first sequence number (default: %(default)s)")
    peek.add_argument("--until", dest="until_sequence_number", type=int, help="sequence number to stop before (default: the end)")
    peek.add_argument("--max", type=_count, help="at most so many messages (default: 25 for a table, all for a file)")
    peek.add_argument("--session", help="only this session")
    peek.add_argument("--columns", help="comma separated (default: what fits a terminal, or all for a file)")
    peek.add_argument("--to", help="Parquet file to write; it appears when it is complete")
    sessions = _command(several, "sessions", commands.sessions, "list the sessions of an entity")
    sessions.add_argument("--since", type=_time, help="only those whose state was set after this time")
    sessions.add_argument("--state", action="store_true", help="with their states, one request each")
    _command(several, "rules", commands.rules, "list the rules of a subscription")
    purge = _command(several, "purge", commands.purge, "delete messages; asks first")
    purge.add_argument("--before", type=_time, help="only what was enqueued before this time (default: now)")
    purge.add_argument("--session", help="only this session")
    purge.add_argument("--yes", action="store_true", help="do not ask")
    return whole


def _command(several: argparse._SubParsersAction[argparse.ArgumentParser], name: str, run: object, text: str) -> argparse.ArgumentParser:
    command = several.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    command.add_argument("entity", help="orders, events/Subscriptions/audit, orders/$DeadLetterQueue, ...")
    command.add_argument("--connection-string", help=f"default: {CONNECTION_STRING} of the environment, which is safer")
    command.add_argument("--transport", choices=("amqp", "amqpWebSocket"), default="amqp", help="default: %(default)s")
    command.add_argument("--ca-file", help="PEM file of extra trusted CAs")
    command.set_defaults(run=run)
    return command


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of 1 or more")
    return int(text)


def _time(text: str) -> datetime:
    """ISO 8601; without an offset it is UTC."""
    try:
        time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: write 2026-01-31T12:00:00Z") from None
    return time if time.tzinfo is not None else time.replace(tzinfo=timezone.utc)
