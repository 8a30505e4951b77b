"""What the service refuses, in the words of the options."""

from __future__ import annotations

import pickle

import pytest

from spark_sb_mgmt.errors import AuthenticationError, DeadlineExceededError, OperationTimeoutError, SbMgmtError, ServerBusyError
from spark_sb_mgmt.spark.reading.read_errors import explained


@pytest.mark.parametrize(
    ("error", "words", "says"),
    [
        (
            ServerBusyError("please wait 10 seconds"),
            "please wait 10 seconds",
            "option maxRetries says: raise that, or ask for less at once",
        ),
        (OperationTimeoutError("it took too long"), "it took too long", "Raise option serverTimeoutMs"),
        (DeadlineExceededError("request", 5), "no answer within the request deadline of 5 s", "Raise option serverTimeoutMs"),
    ],
)
def test_what_took_too_long_says_which_option_gives_it_more(error: SbMgmtError, words: str, says: str) -> None:
    with pytest.raises(type(error)) as caught, explained("peek-message", "orders"):
        raise error
    for said in (str(caught.value), str(pickle.loads(pickle.dumps(caught.value)))):
        assert said.startswith(f"{words}. ")
        assert says in said
        assert "peek-message on orders" in said


def test_the_right_is_named_where_the_service_refused_it() -> None:
    with pytest.raises(AuthenticationError, match="needs the right Listen there"), explained("peek-message", "orders"):
        raise AuthenticationError("no such key", status=401)
    with pytest.raises(AuthenticationError) as caught, explained("peek-message", "orders"):
        raise AuthenticationError("the SharedAccessSignature ended yesterday: give a new one")
    assert "right" not in str(caught.value)
