"""Byte streams under the AMQP engine: plain TCP, and TLS by Python's ssl over it. `websocket` has the third kind.

The one rule: a stream never blocks but in `wait`, and `wait` never longer than it is told. `receive` and `send` do what can be done
now; whoever drives a stream has a deadline.

proton could do TLS itself, but where its build did not find OpenSSL it silently does not (DESIGN section 2).
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
from typing import Final, Protocol

from spark_sb_mgmt.connection.bounded import within
from spark_sb_mgmt.connection.timing import Deadline
from spark_sb_mgmt.errors import ConnectionFailedError, ConnectionLostError, InvalidArgumentError

# What one `receive` brings at most: some frames of the 64 KB that the service sends.
RECEIVE_SIZE: Final = 256 * 1024
# OpenSSL's words, older and newer, for an answer that is no TLS.
_NOT_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
_PLAIN_HINT: Final = "if it is an emulator, add UseDevelopmentEmulator=true to the connection string"


class ByteStream(Protocol):
    """Bytes both ways. What `receive` gives is valid until it is called again."""

    def receive(self) -> memoryview | None:
        """Bytes that are there; an empty view at the end of the stream, None if there is nothing yet."""

    def send(self, data: bytes | bytearray | memoryview) -> int:
        """How many of the bytes were taken; what was not is to be given again, after `wait`."""

    def wait(self, timeout: float, *, to_send: bool = False) -> None:
        """Until there is something to receive, or room to send if that is asked for, or the time is over."""

    def close(self) -> None:
        """At once, without waiting for anybody."""

    def interrupt(self) -> None:
        """Make whoever waits in another thread find the stream ended; that one closes it."""

    def abandon(self) -> None:
        """Let go of it without a word to the peer: the process that opened it goes on using it."""


class TcpStream:
    """A connected socket."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._poll = select.poll()
        self._watched = 0
        self._buffer = memoryview(bytearray(RECEIVE_SIZE))

    def receive(self) -> memoryview | None:
        try:
            size = self._socket.recv_into(self._buffer)
        except BlockingIOError:
            return None
        except OSError as problem:
            raise _lost(problem) from problem
        return self._buffer[:size]

    def send(self, data: bytes | bytearray | memoryview) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as problem:
            raise _lost(problem) from problem

    def wait(self, timeout: float, *, to_send: bool = False) -> None:
        self.wait_for(select.POLLIN | select.POLLOUT if to_send else select.POLLIN, timeout)

    def wait_for(self, events: int, timeout: float) -> None:
        if events != self._watched:
            self._poll.register(self._socket, events)
            self._watched = events
        # Rounded up: a wait of less than a millisecond must not become a busy loop.
        self._poll.poll(max(0, int(timeout * 1000) + 1) if timeout > 0 else 0)

    def close(self) -> None:
        # Before close: another process may hold a copy of the descriptor, and the peer is to know now.
        self.interrupt()
        self._socket.close()

    def interrupt(self) -> None:
        with contextlib.suppress(OSError):
            # The socket's own, not that of TLS, which would forget its state under the one who uses it.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def abandon(self) -> None:
        self._socket.close()


class TlsStream:
    """TLS over a socket, by ssl's own reading and writing of it."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, server_name: str, deadline: Deadline) -> None:
        self._tls = context.wrap_socket(sock, server_hostname=server_name, do_handshake_on_connect=False, suppress_ragged_eofs=True)
        self._tcp = TcpStream(self._tls)
        self._buffer = memoryview(bytearray(RECEIVE_SIZE))
        # A read that has to write first: TLS may exchange keys at any time.
        self._read_wants_write = False
        try:
            self._handshake(server_name, deadline)
        except BaseException:
            self._tls.close()
            raise

    def _handshake(self, server_name: str, deadline: Deadline) -> None:
        while True:
            try:
                self._tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                self._tcp.wait_for(select.POLLIN, deadline.remaining)
            except ssl.SSLWantWriteError:
                self._tcp.wait_for(select.POLLOUT, deadline.remaining)
            except ssl.SSLCertVerificationError as problem:
                reason = problem.verify_message.rstrip(".")
                raise ConnectionFailedError(
                    f"the certificate of {server_name} is not to be trusted: {reason}. If it is signed by a CA of your "
                    f"own, give its PEM file as caFile",
                    retryable=False,
                ) from None
            except ssl.SSLError as problem:
                reason = problem.reason or str(problem)
                hint = f". It does not speak TLS there; {_PLAIN_HINT}" if reason in _NOT_TLS else ""
                raise ConnectionFailedError(f"no TLS with {server_name}: {reason}{hint}", retryable=False) from None
            except OSError as problem:
                raise ConnectionFailedError(f"no TLS with {server_name}: {_why(problem)}") from problem
            deadline.check()

    def receive(self) -> memoryview | None:
        # One TLS record at a time is 16 KB at most; as many as are there are gathered.
        filled = 0
        self._read_wants_write = False
        try:
            while filled < RECEIVE_SIZE:
                size = self._tls.recv_into(self._buffer[filled:])
                if not size:
                    # The end is told by the next call, if this one has bytes to give.
                    return self._buffer[:filled]
                filled += size
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLWantWriteError:
            self._read_wants_write = True
        except OSError as problem:
            if not filled:
                raise _lost(problem) from problem
        return self._buffer[:filled] if filled else None

    def send(self, data: bytes | bytearray | memoryview) -> int:
        try:
            return self._tls.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0
        except OSError as problem:
            raise _lost(problem) from problem

    def wait(self, timeout: float, *, to_send: bool = False) -> None:
        # Bytes that ssl has decrypted already are not seen by poll.
        if self._tls.pending():
            return
        self._tcp.wait(timeout, to_send=to_send or self._read_wants_write)

    def close(self) -> None:
        self._tcp.close()

    def interrupt(self) -> None:
        self._tcp.interrupt()

    def abandon(self) -> None:
        self._tcp.abandon()


def connect_tcp(host: str, port: int, deadline: Deadline) -> socket.socket:
    """A connected socket to the first address of the name that answers."""
    try:
        addresses = within(deadline, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except OSError as problem:
        raise ConnectionFailedError(f"the name {host} is not known: {_why(problem)}") from problem
    except UnicodeError:
        # What the encoding of names says of a part that is empty or too long.
        raise ConnectionFailedError(f"{host} cannot be the name of a host", retryable=False) from None
    failure: OSError | None = None
    for position, (family, kind, protocol, _, address) in enumerate(addresses):
        deadline.check()
        try:
            sock = socket.socket(family, kind, protocol)
        except OSError as problem:
            # A kind of address that this machine does not have, as where IPv6 is turned off.
            failure = problem
            continue
        try:
            # An address that does not answer leaves time for the next ones.
            sock.settimeout(deadline.remaining / (len(addresses) - position))
            sock.connect(address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        except OSError as problem:
            sock.close()
            failure = problem
    if isinstance(failure, TimeoutError):
        raise deadline.error() from None
    raise ConnectionFailedError(f"no connection to {host}:{port}: {_why(failure)}") from failure


def tls_context(ca_file: str | os.PathLike[str] | None = None) -> ssl.SSLContext:
    """What Python verifies by default: chain, dates and name. `ca_file` adds to the system's CAs."""
    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(cafile=ca_file)
        except (OSError, ssl.SSLError) as problem:
            raise InvalidArgumentError("caFile", f"is {ca_file}, which is no readable PEM file of certificates: {_why(problem)}") from None
    return context


def over_socket(sock: socket.socket, host: str, context: ssl.SSLContext | None, deadline: Deadline) -> ByteStream:
    """TLS with a context, plain TCP without."""
    if context is None:
        return TcpStream(sock)
    sock.setblocking(False)
    return TlsStream(sock, context, host, deadline)


def _why(problem: OSError | None) -> str:
    return (problem.strerror or str(problem) or type(problem).__name__) if problem is not None else "it has no address"


def _lost(problem: OSError) -> ConnectionLostError:
    return ConnectionLostError(f"the connection broke: {_why(problem)}", may_have_taken_effect=True)
