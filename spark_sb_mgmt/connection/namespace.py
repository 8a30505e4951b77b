"""The connection to a namespace: opened when it is needed, opened again when it was lost, one for all entities.

The one rule: one thread at a time, in the process that opened it. Calls from several threads take turns, each for as long as it waits for
its answer; who wants them side by side gives each thread a client. In a process that was forked the parent's connection is let go of
without a byte, and a new one opened.

Tokens: each entity's is put before its links are attached, and replaced, with requests in flight, when most of its life is over. Whoever
gives the new one may take its time: nobody waits for it meanwhile. A replacement that fails is tried again until the old one ends; the
service then drops the links, and opening them anew says what is wrong.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from spark_sb_mgmt.connection.bounded import Begun
from spark_sb_mgmt.connection.cbs import encode_put_token, put_token_error
from spark_sb_mgmt.connection.credentials import Credential, SharedAccessKey, Token
from spark_sb_mgmt.connection.endpoint import Endpoint
from spark_sb_mgmt.connection.engine import Engine
from spark_sb_mgmt.connection.request_links import Exchange, RequestLinks, unsent
from spark_sb_mgmt.connection.sasl import PLAIN, SaslClient
from spark_sb_mgmt.connection.settings import Settings
from spark_sb_mgmt.connection.timing import Deadline, DrivenClock, Timing
from spark_sb_mgmt.errors import ClosedError, ConnectionLostError, DeadlineExceededError, SbMgmtError
from spark_sb_mgmt.operations import names

# Between two attempts to replace a token.
_RENEWAL_RETRY_S: Final = 10.0
# Most tokens are there at once, signed here or kept by the library. For one that is not, answers are looked after first; then whether it
# has come is looked at so often.
_PATIENCE_S: Final = 0.05
_LOOK_AGAIN_S: Final = 0.1


@dataclass
class _Authorization:
    """A token that the service has. `renew_at` is None where it cannot be replaced."""

    renew_at: float | None
    expires_at: float
    # A replacement is asked of the credential, then put.
    asked: Begun[Token] | None = None
    renewal: Exchange | None = None
    next_token: Token | None = None


class NamespaceConnection:
    def __init__(self, endpoint: Endpoint, credential: Credential, timing: Timing | None = None) -> None:
        self.endpoint = endpoint
        self.settings: Settings = endpoint.settings
        self.timing = timing or Timing()
        # What deadlines of requests are counted by.
        self.clock = DrivenClock(self.timing.clock)
        self._credential = credential
        self._engine: Engine | None = None
        self._cbs: RequestLinks | None = None
        self._authorizations: dict[str, _Authorization] = {}
        self._postponed: deque[Callable[[], None]] = deque()
        self._closed = threading.Event()
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._depth = 0

    def another(self) -> NamespaceConnection:
        """Not open yet, to the same namespace as the same user."""
        return NamespaceConnection(self.endpoint, self._credential, self.timing)

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "open" if self.engine is not None else "not open"
        return f"NamespaceConnection({self.endpoint.host}:{self.endpoint.actual_port}, {state})"

    @property
    def engine(self) -> Engine | None:
        """The one that is open, if one is."""
        return self._engine if self._engine is not None and self._engine.error is None else None

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    # --- who drives -----------------------------------------------------------------------------------------------------

    @contextmanager
    def driving(self) -> Iterator[None]:
        """For as long as one waits for something. What is ready to be sent is sent before it is left."""
        self._leave_parent()
        with self._lock:
            self.check_open()
            self._depth += 1
            if self._depth == 1:
                self.clock.enter()
            try:
                yield
                if self._depth == 1 and self._engine is not None:
                    self._do_postponed()
                    self._engine.flush()
            except SbMgmtError:
                raise
            except BaseException:
                # Interrupted in the middle of anything: what state the engine is in is not known.
                if self._engine is not None:
                    self._engine.fail(ConnectionLostError("the connection was interrupted", may_have_taken_effect=True))
                raise
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self.clock.leave()

    def when_idle(self, action: Callable[[], None]) -> None:
        """Do something that waits for nobody: now, or, if another thread drives, by that one when it is done."""
        self._leave_parent()
        self._postponed.append(action)
        if self._lock.acquire(blocking=False):
            try:
                self._do_postponed()
                if self._engine is not None:
                    self._engine.flush()
            finally:
                self._lock.release()

    def _do_postponed(self) -> None:
        while self._postponed:
            self._postponed.popleft()()

    def _leave_parent(self) -> None:
        if self._process == os.getpid():
            return
        # A thread of the parent may have held the lock when the process was forked; nobody here will release it.
        self._lock = threading.RLock()
        closed, self._closed = self._closed.is_set(), threading.Event()
        if closed:
            self._closed.set()
        self._depth = 0
        self._process = os.getpid()
        if self._engine is not None:
            self._engine.abandon()

    def check_open(self) -> None:
        if self.is_closed:
            raise ClosedError(f"the client of {self.endpoint.host} was closed")

    def pause(self, seconds: float) -> None:
        """Wait before trying again, but not longer than the client is open."""
        self.timing.sleep(seconds, self._closed)

    def deadline(self, name: str, seconds: float) -> Deadline:
        return Deadline(name, seconds, self.clock)

    # --- opening --------------------------------------------------------------------------------------------------------

    def open(self) -> Engine:
        """The engine, connected. Raises why it could not be; nothing was sent then."""
        if self.engine is not None:
            return self.engine
        self._authorizations.clear()
        self._cbs = None
        settings, timing = self.settings, self.timing
        try:
            stream = self.endpoint.open(timing.deadline("connect", settings.connect_timeout_s))
        except SbMgmtError as problem:
            # Also where the peer broke a protocol: nothing of anybody's was sent yet.
            problem.may_have_taken_effect = False
            raise
        engine = Engine(stream, self.endpoint.host, settings.idle_timeout_s, timing.clock)
        # Before it is open, so that closing the client from another thread finds it; one that was quicker is found here.
        self._engine = engine
        if self.is_closed:
            engine.fail(ConnectionLostError("the client was closed", may_have_taken_effect=False))
        self.check_open()
        engine.open(SaslClient(self.endpoint.host, self._policy()), timing.deadline("open", settings.open_timeout_s))
        return engine

    def _policy(self) -> tuple[str, str] | None:
        credential = self._credential
        if isinstance(credential, SharedAccessKey) and self.endpoint.is_encrypted:
            return credential.name, credential.key
        return None

    def links(self, entity: str) -> RequestLinks:
        """A new pair to the entity's management node, authorised and attached."""
        if self.engine is not None and self.engine.is_worn(besides=self._cbs):
            self.engine.close(self.timing.deadline("close", self.settings.close_timeout_s))
        engine = self.open()
        try:
            self.authorize(entity)
            pair = RequestLinks(engine, f"{entity}/{names.MANAGEMENT_NODE}")
            pair.attach(self.deadline("attach", self.settings.attach_timeout_s))
        except SbMgmtError as problem:
            if isinstance(problem, DeadlineExceededError):
                engine.left_unanswered()
            raise unsent(problem).about(entity=entity) from None
        return pair

    # --- tokens ---------------------------------------------------------------------------------------------------------

    def authorize(self, entity: str) -> None:
        """Put a token for the entity, if the service has none of us yet."""
        engine = self.open()
        had = self._authorizations.get(entity)
        # One that ended while nobody drove is being replaced, but whether the service knows the new one before it sees the links is chance.
        if (had is not None and self.timing.now() < had.expires_at) or engine.mechanism == PLAIN:
            return
        token = self._ask_token(entity).wait()
        deadline = self.deadline("put-token", self.settings.put_token_timeout_s)
        finished: list[Exchange] = []
        cbs = self._cbs_links()
        engine.wait_until(lambda: cbs.can_send or cbs.error is not None, deadline)
        self._put_token(cbs, entity, token, deadline, finished.append)
        engine.wait_until(lambda: bool(finished), deadline)
        self._check_put(finished[0], entity)
        self._authorizations[entity] = _Authorization(token.renew_at, token.expires_at)

    def _ask_token(self, entity: str) -> Begun[Token]:
        audience, now = self.endpoint.audience(entity), self.timing.now()
        deadline = self.timing.deadline("token", self.settings.token_timeout_s)
        return Begun(deadline, lambda: self._credential.token(audience, now))

    def _cbs_links(self) -> RequestLinks:
        if self._cbs is None or not self._cbs.is_usable:
            cbs = RequestLinks(self.open(), names.CBS_NODE)
            cbs.attach(self.deadline("attach", self.settings.attach_timeout_s))
            self._cbs = cbs
        return self._cbs

    def _put_token(self, cbs: RequestLinks, entity: str, token: Token, deadline: Deadline, done: Callable[[Exchange], None]) -> Exchange:
        if cbs.error is not None:
            raise cbs.error
        audience = self.endpoint.audience(entity)
        return cbs.send(lambda message_id, reply_to: encode_put_token(token, audience, message_id, reply_to), deadline, done)

    def _check_put(self, exchange: Exchange, entity: str) -> None:
        error = exchange.error
        if exchange.response is not None:
            error = put_token_error(exchange.response)
        if error is not None:
            raise unsent(error).about(entity=entity)

    def forget_token(self, entity: str) -> None:
        """The service finds it wanting: before the entity's links are attached again, a new one is put."""
        self._authorizations.pop(entity, None)

    def renew_tokens(self) -> float | None:
        """Start and finish replacing tokens, without waiting. Seconds until there is more to do, None if nothing is to be expected."""
        if self.engine is None:
            return None
        waits = []
        for entity, authorization in self._authorizations.items():
            try:
                self._renew(entity, authorization)
            except SbMgmtError:
                authorization.asked = authorization.renewal = authorization.next_token = None
                authorization.renew_at = self.timing.now() + _RENEWAL_RETRY_S
            if authorization.asked is not None:
                waits.append(_LOOK_AGAIN_S)
            elif authorization.renewal is not None:
                waits.append(authorization.renewal.deadline.remaining)
            elif authorization.renew_at is not None:
                waits.append(max(0.0, authorization.renew_at - self.timing.now()))
        return min(waits, default=None)

    def _renew(self, entity: str, authorization: _Authorization) -> None:
        renewal, token = authorization.renewal, authorization.next_token
        if renewal is not None and token is not None:
            if self._cbs is not None:
                self._cbs.expire()
            if renewal.response is None and renewal.error is None:
                return
            self._check_put(renewal, entity)
            authorization.renewal = authorization.next_token = None
            authorization.renew_at, authorization.expires_at = token.renew_at, token.expires_at
        elif authorization.renew_at is not None and self.timing.now() >= authorization.renew_at:
            patience = 0.0 if authorization.asked is not None else _PATIENCE_S
            authorization.asked = authorization.asked or self._ask_token(entity)
            if not authorization.asked.is_done(patience):
                return
            token, authorization.asked = authorization.asked.result, None
            deadline = self.deadline("put-token", self.settings.put_token_timeout_s)
            authorization.renewal = self._put_token(self._cbs_links(), entity, token, deadline, _ignore)
            authorization.next_token = token

    # --- closing --------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Prompt, whatever the peer or another thread does. Closing twice is closing once."""
        self._leave_parent()
        self._closed.set()
        deadline = self.timing.deadline("close", self.settings.close_timeout_s)
        if not self._lock.acquire(timeout=0):
            # Another thread waits for an answer: it finds the connection ended, and us closed.
            engine = self._engine
            if engine is not None:
                engine.interrupt()
            if not self._lock.acquire(timeout=deadline.remaining):
                return
        try:
            if self._engine is not None:
                self._engine.close(deadline)
                self._engine = None
        finally:
            self._lock.release()


def _ignore(exchange: Exchange) -> None:
    """Whoever sent it looks at it by himself."""
