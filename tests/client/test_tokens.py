"""Tokens on connections that live longer than they do: renewed in time, with requests in flight, and what happens where that fails."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_sb_mgmt.amqp.types import Int
from spark_sb_mgmt.client import EntityClient, ManagementClient
from spark_sb_mgmt.connection.credentials import SharedAccessKey, as_credential
from spark_sb_mgmt.connection.retry import RetryPolicy
from spark_sb_mgmt.connection.timing import Timing
from spark_sb_mgmt.emulator import Emulator, ManualClock
from spark_sb_mgmt.errors import AuthenticationError, DeadlineExceededError, SbMgmtError
from spark_sb_mgmt.operations.peek import peek_message
from tests.client.certificates import Authority
from tests.client.conftest import CONFIG, SOON
from tests.client.scripted_peer import Asked, ScriptedPeer, take_token
from tests.client.test_misbehaving_service import page

# A token of a key lives for an hour; most of it is over.
MOST_OF_A_LIFE = 3300.0


class Now:
    """The time that tokens are dated in, moved by the test."""

    def __init__(self) -> None:
        self.seconds = time.time()
        self.timing = Timing(now=lambda: self.seconds)


@pytest.fixture
def now() -> Now:
    return Now()


def answer(asked: Asked) -> None:
    asked.reply(200, page(asked.body["from-sequence-number"]))


def refuse(asked: Asked, status: int = 401) -> None:
    asked.reply(None, None, properties={"status-code": Int(status), "status-description": "no"})


def peeked(orders: EntityClient, count: int, depth: int = 4) -> list[int]:
    """Positions of the peeks that were answered, of so many in a pipeline."""
    return sorted(
        position
        for position, outcome in orders.pipeline([peek_message(number) for number in range(count)], depth)
        if not isinstance(outcome, SbMgmtError)
    )


def entity_of(asked: Asked) -> str:
    return str(asked.properties["name"]).rpartition("127.0.0.1/")[2]


def test_a_token_is_put_once_for_each_entity(now: Now) -> None:
    with ScriptedPeer(answer) as peer, peer.client(timing=now.timing) as client:
        for path in ("orders", "site1/orders", "orders"):
            with client.entity(path) as entity:
                assert peeked(entity, 10) == list(range(10))
        assert [entity_of(asked) for asked in peer.tokens] == ["orders", "site1/orders"]
        assert all(asked.properties["type"] == "servicebus.windows.net:sastoken" for asked in peer.tokens)


def test_a_token_is_replaced_while_requests_are_in_flight(now: Now) -> None:
    held: list[Asked] = []

    def script(asked: Asked) -> None:
        held.append(asked)
        if asked.position == 3:
            now.seconds += MOST_OF_A_LIFE
            answer(held.pop(0))
        elif asked.position > 3:
            answer(held.pop())

    def cbs(asked: Asked) -> None:
        take_token(asked)
        while len(peer.tokens) == 2 and held:
            # What was in flight is answered behind the new token.
            answer(held.pop())

    with ScriptedPeer(script, cbs=cbs) as peer, peer.client(timing=now.timing, max_retries=0) as client, client.entity("orders") as orders:
        assert peeked(orders, 20) == list(range(20))
        first, second = (asked.properties["expiration"] for asked in peer.tokens)
        assert second - first == pytest.approx(MOST_OF_A_LIFE * 1000, abs=2000)
        assert (len(peer.requests), peer.attached.count("orders/$management"), peer.accepted) == (20, 2, 1)


def test_every_entity_in_use_has_its_token_replaced_whoever_drives(now: Now) -> None:
    with ScriptedPeer(answer) as peer, peer.client(timing=now.timing) as client:
        orders, other = client.entity("orders"), client.entity("other")
        for entity in (orders, other):
            entity.peek_message()
        now.seconds += MOST_OF_A_LIFE
        for _ in range(3):
            orders.peek_message()
        assert sorted(map(entity_of, peer.tokens)) == ["orders", "orders", "other", "other"]


@pytest.mark.parametrize("fail", [refuse, lambda asked: refuse(asked, 500), lambda asked: None], ids=["refused", "failed", "unanswered"])
def test_a_replacement_that_fails_is_tried_again_later_and_disturbs_nobody(fail: Callable[[Asked], None], now: Now) -> None:
    def cbs(asked: Asked) -> None:
        fail(asked) if len(peer.tokens) == 2 else take_token(asked)

    settings: dict[str, Any] = {"timing": now.timing, "put_token_timeout_s": 0.02, "max_retries": 0}
    with ScriptedPeer(answer, cbs=cbs) as peer, peer.client(**settings) as client, client.entity("orders") as orders:
        orders.peek_message()
        now.seconds += MOST_OF_A_LIFE
        deadline = time.monotonic() + 10
        while len(peer.tokens) < 3:
            assert peeked(orders, 5) == list(range(5))
            if len(peer.tokens) == 2:
                now.seconds += 1
            assert time.monotonic() < deadline
        assert peeked(orders, 5) == list(range(5))
        assert peer.accepted == 1


def test_a_credential_that_takes_its_time_over_a_new_token_holds_up_nobody(now: Now) -> None:
    given = threading.Event()

    class Identity:
        asked = 0

        def get_token(self, *scopes: str, **_: Any) -> SimpleNamespace:
            self.asked += 1
            # The first is there at once.
            assert self.asked == 1 or given.wait(10)
            return SimpleNamespace(token=f"eyJhbGciOiJub25lIn0.e30.{self.asked}", expires_on=now.seconds + 3600)

    identity = Identity()
    with ScriptedPeer(answer) as peer, peer.client(timing=now.timing) as client, client.entity("orders") as orders:
        client._connection._credential = as_credential(identity)
        orders.peek_message()
        now.seconds += MOST_OF_A_LIFE
        assert peeked(orders, 50) == list(range(50))
        assert (identity.asked, len(peer.tokens)) == (2, 1)
        given.set()
        deadline = time.monotonic() + 10
        while len(peer.tokens) < 2:
            assert peeked(orders, 5) == list(range(5))
            assert time.monotonic() < deadline
        assert [asked.body for asked in peer.tokens] == ["eyJhbGciOiJub25lIn0.e30.1", "eyJhbGciOiJub25lIn0.e30.2"]
        assert (identity.asked, peer.accepted) == (2, 1)


def test_a_credential_that_never_gives_a_new_token_is_asked_again(now: Now) -> None:
    never = threading.Event()

    class Identity:
        asked = 0

        def get_token(self, *scopes: str, **_: Any) -> SimpleNamespace:
            self.asked += 1
            if self.asked == 2:
                never.wait()
            return SimpleNamespace(token="eyJhbGciOiJub25lIn0.e30.x", expires_on=now.seconds + 3600)

    identity = Identity()
    with ScriptedPeer(answer) as peer, peer.client(timing=now.timing, token_timeout_s=0.1) as client, client.entity("orders") as orders:
        client._connection._credential = as_credential(identity)
        orders.peek_message()
        now.seconds += MOST_OF_A_LIFE
        deadline = time.monotonic() + 10
        try:
            while len(peer.tokens) < 2:
                assert peeked(orders, 5) == list(range(5))
                now.seconds += 0.1
                assert time.monotonic() < deadline
        finally:
            never.set()
        assert identity.asked == 3


def test_a_credential_that_gives_no_new_token_is_told_when_the_old_one_is_of_no_use(now: Now) -> None:
    class Identity:
        asked = 0

        def get_token(self, *scopes: str, **_: Any) -> SimpleNamespace:
            self.asked += 1
            if self.asked > 1:
                raise RuntimeError("the identity was taken away")
            return SimpleNamespace(token="eyJhbGciOiJub25lIn0.e30.x", expires_on=now.seconds + 3600)

    identity = Identity()

    def script(asked: Asked) -> None:
        # The service drops the links of a token that ended.
        asked.detach("amqp:unauthorized-access") if now.seconds > started + 3600 else answer(asked)

    started = now.seconds
    with ScriptedPeer(script) as peer, peer.client(timing=now.timing) as client:
        client._connection._credential = as_credential(identity)
        orders = client.entity("orders")
        orders.peek_message()
        now.seconds += MOST_OF_A_LIFE
        orders.peek_message()
        assert identity.asked == 2
        now.seconds += 3600
        with pytest.raises(AuthenticationError, match="the identity was taken away") as caught:
            orders.peek_message()
        assert (caught.value.operation, caught.value.entity) == ("peek-message", "orders")


@pytest.mark.parametrize("idle", [True, False], ids=["while-idle", "in-flight"])
def test_a_token_that_ended_is_put_anew_and_a_safe_request_goes_on(idle: bool, now: Now) -> None:
    """As where a reader was suspended for longer than a token lives."""
    with Emulator.start(CONFIG, clock=ManualClock(int(now.seconds * 1000))) as emulator:
        text = emulator.connection_string
        with ManagementClient.from_connection_string(text, timing=now.timing, retry=SOON) as client, client.entity("orders") as orders:
            outcomes = orders.pipeline([peek_message(number) for number in range(20)], depth=1 if idle else 8)
            next(outcomes)
            now.seconds += 4000
            emulator.advance(4000)
            assert [outcome for _, outcome in outcomes if isinstance(outcome, SbMgmtError)] == []
            # Its renewal may have begun before it was seen that the links are gone.
            assert emulator.requests["put-token"] in (2, 3)


def test_links_that_were_lost_while_a_token_ended_are_opened_when_the_service_has_the_new_one(now: Now) -> None:
    timers: list[threading.Timer] = []

    def taken(asked: Asked) -> None:
        peer.refuse_attach = {}
        take_token(asked)

    def cbs(asked: Asked) -> None:
        if len(peer.tokens) == 1:
            take_token(asked)
            return
        # It takes a while, in which whoever attaches is a stranger.
        timers.append(threading.Timer(0.05, lambda: peer.do(lambda: taken(asked))))
        timers[-1].start()

    def script(asked: Asked) -> None:
        answer(asked)
        if asked.position == 0:
            asked.detach("amqp:link:detach-forced")
            peer.refuse_attach = {"orders/$management": "amqp:unauthorized-access"}

    with ScriptedPeer(script, cbs=cbs) as peer, peer.client(timing=now.timing) as client, client.entity("orders") as orders:
        orders.peek_message()
        now.seconds += 4000
        assert orders.peek_message(7)[0].sequence_number == 7
        assert peer.accepted == 1
        for timer in timers:
            timer.join()


def test_a_signature_that_cannot_be_replaced_is_used_until_its_end_and_then_says_so(now: Now) -> None:
    with Emulator.start(CONFIG, clock=ManualClock(int(now.seconds * 1000))) as emulator:
        key = SharedAccessKey("RootManageSharedAccessKey", "SAS_KEY_VALUE", lifetime_s=60)
        signature = key.token("sb://127.0.0.1/orders", now.seconds).value
        text = f"Endpoint=sb://127.0.0.1:{emulator.port};SharedAccessSignature={signature};UseDevelopmentEmulator=true"
        with ManagementClient.from_connection_string(text, timing=now.timing, retry=SOON) as client, client.entity("orders") as orders:
            assert len(orders.peek_message()) == 0
            for _ in range(3):
                now.seconds += 19
                emulator.advance(19)
                assert len(orders.peek_message()) == 0
            assert emulator.requests["put-token"] == 1
            now.seconds += 19
            emulator.advance(19)
            for entity in (orders, client.entity("orders")):
                with pytest.raises(AuthenticationError, match="give a new one") as caught:
                    entity.peek_message()
                assert not caught.value.retryable


def test_a_credential_that_never_answers() -> None:
    never = threading.Event()

    class Identity:
        def get_token(self, *scopes: str, **_: Any) -> Any:
            never.wait()

    with ScriptedPeer(answer) as peer, peer.client(token_timeout_s=0.05, max_retries=0) as client:
        client._connection._credential = as_credential(Identity())
        try:
            with pytest.raises(DeadlineExceededError) as caught:
                client.entity("orders").cancel_scheduled_message([1])
        finally:
            never.set()
        assert (caught.value.deadline, caught.value.may_have_taken_effect) == ("token", False)
        assert (caught.value.operation, caught.value.entity) == ("cancel-scheduled-message", "orders")
        assert peer.tokens == []


def json_web_token(expires_at: float) -> str:
    """Of nobody, signed by nobody: an emulator does not look."""

    def part(content: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part({'exp': int(expires_at)})}.signature"


def test_tokens_of_entra_are_replaced_during_traffic(now: Now, tmp_path: Path) -> None:
    """Many lives of a token, over TLS, as `ManagementClient(namespace, credential)` goes. A link that was dropped would fail a peek."""
    authority = Authority(tmp_path)
    certificate = authority.good()
    given: list[float] = []

    class Identity:
        def get_token(self, *scopes: str, **_: Any) -> SimpleNamespace:
            assert scopes == ("https://servicebus.azure.net//.default",)
            given.append(now.seconds)
            return SimpleNamespace(token=json_web_token(now.seconds + 100), expires_on=now.seconds + 100)

    clock = ManualClock(int(now.seconds * 1000))
    never = RetryPolicy(max_retries=0)
    with (
        Emulator.start(CONFIG, clock=clock, tls_port=0, cert=certificate.cert, key=certificate.key, accept_jwt=True) as emulator,
        ManagementClient(
            f"localhost:{emulator.tls_port}", Identity(), ca_file=str(authority.ca_file), timing=now.timing, retry=never
        ) as client,
    ):
        with client.entity("orders") as orders:
            for position, outcome in orders.pipeline((peek_message(0, 1) for _ in range(400)), depth=8):
                if isinstance(outcome, SbMgmtError):
                    raise outcome
                if position % 4 == 3:
                    now.seconds += 5
                    emulator.advance(5)
        assert emulator.requests["peek-message"] == 400
        # 500 s of traffic, a token for each 85 of them; none early.
        assert len(given) == emulator.requests["put-token"] == 6
        assert all(85 <= later - earlier < 100 for earlier, later in pairwise(given))
