"""`python -m surecast.broker.replica`: runs a replica, or administers a group."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path

from surecast.broker.replica.administer import ask_replace, ask_status, check_never_ran
from surecast.broker.replica.founding import LostStateError, found_replica, new_founding, write_founding
from surecast.broker.replica.group_file import load_group
from surecast.broker.replica.replica_service import EXIT_FAILED, find_handler, run_replica
from surecast.broker.service_log import BrokerLog
from surecast.broker.store_base import DamagedError
from surecast.errors import SurecastError


def main(arguments: list[str] | None = None) -> int:
    """Runs a replica until it is told to stop, or asks a running group; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m surecast.broker.replica", description=__doc__)
    parser.add_argument("--group", type=Path, required=True, help="the group's file")
    parser.add_argument("--id", type=int, help="the number of the replica to run")
    parser.add_argument("--found", action="store_true", help="found the group in its file; with --id, make that store")
    parser.add_argument("--handler", help="what makes the state machine: package.module:factory")
    parser.add_argument("--status", action="store_true", help="print the status of every replica that answers")
    parser.add_argument("--replace", type=int, metavar="OLD", help="replace a replica by the one named with --by")
    parser.add_argument("--by", type=int, metavar="NEW", help="the replica that takes the place; it is running already")
    parser.add_argument("--address", help="where other replicas reach the new one; the group's file says it otherwise")
    parser.add_argument("--log-format", choices=("text", "json"), default="text")
    given = parser.parse_args(arguments)
    try:
        group = load_group(given.group)
        if given.replace is not None:
            if given.by is None:
                parser.error("--replace needs --by")
            since = asyncio.run(ask_replace(group, given.replace, given.by, given.address))
            sys.stdout.write(f"replica {given.by} takes the place of {given.replace} from instance {since} on\n")
            return 0
        if given.status:
            for status in asyncio.run(ask_status(group)):
                sys.stdout.write(json.dumps(status) + "\n")
            return 0
        if given.found:
            if given.id is None:
                write_founding(given.group, new_founding())
            else:
                asyncio.run(check_never_ran(group, given.id))
            where = given.group if given.id is None else found_replica(group, given.id)
            sys.stdout.write(f"founded: {where}\n")
            return 0
        if given.id is None or given.handler is None:
            parser.error("--id and --handler are needed to run a replica")
        return run_replica(group, given.id, find_handler(given.handler), BrokerLog("info", given.log_format))
    except SurecastError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_FAILED if isinstance(error, (LostStateError, DamagedError)) else 2


if __name__ == "__main__":
    sys.exit(main())
