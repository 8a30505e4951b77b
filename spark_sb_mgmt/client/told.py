"""Errors that say what they are about, whoever raised them.

The one rule: an error that leaves a method of the client names the operation and the entity, also where it was raised by somebody who
knows neither: by the check of an argument, or by a connection that was closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from spark_sb_mgmt.connection.channel import Channel
from spark_sb_mgmt.errors import SbMgmtError


class _OfAnEntity(Protocol):
    _channel: Channel


S = TypeVar("S", bound=_OfAnEntity)
P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def told(operation: str | None, entity: str) -> Iterator[None]:
    """What an error does not know yet, it learns on its way out."""
    try:
        yield
    except SbMgmtError as problem:
        problem.about(operation, entity)
        raise


def operation(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """A method that is named as its operation is on the wire."""
    name = method.__name__.replace("_", "-")

    @wraps(method)
    def telling(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with told(name, self._channel.entity):
            return method(self, *args, **kwargs)

    return telling
