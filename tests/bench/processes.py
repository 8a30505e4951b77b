"""Processes beside the one that is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any


@contextmanager
def running(serve: Callable[..., None], *arguments: Any) -> Iterator[Any]:
    """A process that runs a function of these arguments and a pipe; what it says first over the pipe, such as its port."""
    context = get_context("spawn")
    ours, its = context.Pipe()
    process = context.Process(target=serve, args=(*arguments, its), daemon=True)
    process.start()
    # The pipe ends then with the process, and nobody waits for one that died.
    its.close()
    try:
        yield ours.recv()
    finally:
        process.kill()
        process.join()
