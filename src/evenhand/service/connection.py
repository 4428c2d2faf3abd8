"""HTTP requests to a service: one connection per thread, with retries.

Every POST carries an Idempotency-Key, so that a request that is sent again is carried out once.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.parse
import uuid
from collections.abc import Callable
from typing import Any, BinaryIO, TypeVar

from evenhand import errors
from evenhand.errors import BadInput, Conflict, EvenhandError, NotFound, StorageFailed

PATIENCE = 30.0  # seconds for which a request is retried
FIRST_WAIT, LONGEST_WAIT = 0.1, 1.0  # between two attempts; doubled in between
DOWNLOAD_SECONDS = 630.0  # the service may take 600 to write an export before it answers
AGAIN = (429, 502, 503, 504)  # retried with the same Idempotency-Key
KINDS: dict[int, type[EvenhandError]] = {  # error class by HTTP status, if the response names none
    400: BadInput,
    401: BadInput,
    403: BadInput,
    404: NotFound,
    409: Conflict,
    413: BadInput,
    415: BadInput,
    422: BadInput,
    503: StorageFailed,
}
T = TypeVar("T")


class _Wire(http.client.HTTPConnection):
    """A connection that is closed when it is no longer referenced, and sends a request in one piece.

    The base class sends headers and body one after the other, for which the service has to wait and to wake
    up twice.
    """

    _held: bytes | None = None  # what was sent of a request that is not complete

    def endheaders(self, message_body: Any = None, *, encode_chunked: bool = False) -> None:
        self._held = b""
        try:
            super().endheaders(message_body, encode_chunked=encode_chunked)
            whole = self._held
        finally:
            self._held = None
        super().send(whole)

    def send(self, data: Any) -> None:
        if self._held is None:
            super().send(data)
        else:
            self._held += data

    def __del__(self) -> None:
        self.close()


class _SecureWire(http.client.HTTPSConnection, _Wire):
    """The same with TLS."""


class Connection:
    """A service's address and key; safe to share between threads."""

    def __init__(self, url: str, key: str | None, seconds: float = 30.0) -> None:
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            raise BadInput(f"an address begins with http:// or https://; it is {url!r}.")
        if key is not None and (not isinstance(key, str) or not key.strip()):
            raise BadInput("a key must be text, as `evenhand keys create` printed it; this one is not.")
        self._parts = urllib.parse.urlsplit(url)
        self._key = key
        self._seconds = seconds
        self._kept = threading.local()

    @property
    def shown_url(self) -> str:
        """Return the address without a user's name and password."""
        return self._parts._replace(netloc=self._host).geturl()

    def __repr__(self) -> str:
        return f"Connection({self.shown_url!r})"

    def get(self, path: str) -> Any:
        """Return the JSON response of a route."""
        return self._send_with_retries("GET", path, None, {}, _read_json)

    def post(self, path: str, body: dict[str, Any], key: str | None = None) -> Any:
        """Send JSON and return the JSON response; `key` is the Idempotency-Key."""
        try:
            data = json.dumps(body, allow_nan=False).encode()
        except (TypeError, ValueError, UnicodeEncodeError) as problem:
            raise BadInput(f"the request cannot be written as JSON: {problem}.") from None
        headers = {"Idempotency-Key": uuid.uuid4().hex if key is None else _checked_key(key)}
        return self._send_with_retries("POST", path, data, headers, _read_json)

    def download(self, path: str, file: BinaryIO) -> None:
        """Write the response of a route into a file, from its current position."""
        start = file.tell()

        def read(answer: http.client.HTTPResponse) -> None:
            file.seek(start)
            file.truncate()
            while part := answer.read(1 << 16):
                file.write(part)

        self.close()
        self._kept.connection = self._opened(DOWNLOAD_SECONDS)
        try:
            self._send_with_retries("GET", path, None, {"Accept": "application/x-ndjson"}, read)
        finally:
            self.close()

    def close(self) -> None:
        """Close the connection of this thread; another request opens it again."""
        kept: http.client.HTTPConnection | None = getattr(self._kept, "connection", None)
        if kept is not None:
            kept.close()
            self._kept.connection = None

    @property
    def _host(self) -> str:
        return self._parts.netloc.rpartition("@")[2]

    def _send_with_retries(
        self,
        method: str,
        path: str,
        data: bytes | None,
        more: dict[str, str],
        read: Callable[[http.client.HTTPResponse], T],
    ) -> T:
        """Send a request; retry with the same headers if connection or storage failed."""
        headers = {"Content-Type": "application/json", "Accept": "application/json"} | more
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        over, wait, kept = time.monotonic() + PATIENCE, FIRST_WAIT, True
        while True:
            try:
                answer = self._send(method, path, data, headers)
                if answer.status < 400:
                    return read(answer)
                refusal = _error(answer.status, answer.read())
                if answer.status not in AGAIN or time.monotonic() > over:
                    raise refusal
            except (http.client.HTTPException, OSError) as failure:
                self.close()
                if time.monotonic() > over:
                    raise StorageFailed(
                        f"the service at {self.shown_url} cannot be reached: {failure}."
                    ) from None
                if kept and isinstance(failure, http.client.RemoteDisconnected):
                    kept = False
                    continue  # the service closed the kept connection in the meantime
            time.sleep(wait)
            wait = min(2.0 * wait, LONGEST_WAIT)

    def _send(
        self, method: str, path: str, data: bytes | None, headers: dict[str, str]
    ) -> http.client.HTTPResponse:
        """Send one request over this thread's connection, which is kept open."""
        kept: http.client.HTTPConnection | None = getattr(self._kept, "connection", None)
        if kept is None:
            kept = self._kept.connection = self._opened(self._seconds)
        kept.request(method, self._parts.path.rstrip("/") + path, data, headers)
        return kept.getresponse()

    def _opened(self, seconds: float) -> http.client.HTTPConnection:
        """Return a new connection with this time limit for the response to begin."""
        kind = _SecureWire if self._parts.scheme == "https" else _Wire
        return kind(self._host, timeout=seconds)


def _read_json(answer: http.client.HTTPResponse) -> Any:
    return json.loads(answer.read())


def _checked_key(key: object) -> str:
    """Return a key that can be sent in a header."""
    if not isinstance(key, str) or not 1 <= len(key) <= 200:
        raise BadInput(f"key must be text of 1 to 200 characters; it is {key!r}.")
    return urllib.parse.quote(key, safe="!\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~")


def _error(code: int, answer: bytes) -> EvenhandError:
    """Return the error that a local experiment would have raised."""
    try:
        refusal = json.loads(answer)
        sentence, kind = refusal["error"], getattr(errors, refusal.get("kind", ""), None)
    except (ValueError, KeyError, TypeError, AttributeError):
        return KINDS.get(code, EvenhandError)(f"the service answered {code}")
    if isinstance(kind, type) and issubclass(kind, EvenhandError):
        return kind(sentence)
    return KINDS.get(code, EvenhandError)(sentence)
