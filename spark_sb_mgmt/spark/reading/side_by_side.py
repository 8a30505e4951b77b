"""The same question to every entity of a read, asked by the driver: of several at once, each by a connection of its own.

A plan takes some ten round trips for an entity. One after another, the dead letters of a hundred subscriptions would keep the job waiting
for a thousand of them.

The one rule: what is told is the answers in the order of the entities, or the error of the first that failed. A failure ends what is still
being asked; nobody waits for an entity that hangs beside one that is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from queue import SimpleQueue
from typing import Final, TypeVar

from spark_sb_mgmt.client import EntityClient, ManagementClient
from spark_sb_mgmt.spark.connections import CONNECTIONS
from spark_sb_mgmt.spark.options.objects import OperationOptions
from spark_sb_mgmt.spark.reading.read_errors import explained

T = TypeVar("T")
# A driver's threads take turns on its processor; what they wait for, they wait for together.
MOST_AT_ONCE: Final = 8


def ask_each(
    options: OperationOptions, paths: Iterable[str], ask: Callable[[EntityClient], T], session_id: str | None = None
) -> dict[str, T]:
    """What each entity answers."""
    entities = list(dict.fromkeys(paths))
    if not entities:
        return {}
    free: SimpleQueue[ManagementClient] = SimpleQueue()
    for client in CONNECTIONS.clients(options.connection, min(len(entities), MOST_AT_ONCE)):
        free.put(client)

    def asked(path: str) -> T:
        client = free.get()
        try:
            with explained(options.operation, path, session_id), client.entity(path) as entity:
                return ask(entity)
        finally:
            free.put(client)

    if len(entities) == 1:
        return {entities[0]: asked(entities[0])}
    with ThreadPoolExecutor(free.qsize()) as pool:
        answers = {path: pool.submit(asked, path) for path in entities}
        try:
            done, _ = wait(answers.values(), return_when=FIRST_EXCEPTION)
            # All are done, unless one of those that are failed, which is raised here.
            return {path: answer.result() for path, answer in answers.items() if answer in done}
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            CONNECTIONS.forget(options.connection)
            raise
