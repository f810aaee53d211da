"""An httpx transport that connects only to addresses the guard has just checked.

The name is resolved inside `connect_tcp`, the last step before the socket, which no redirect or reused client can
bypass. `Host` and the TLS server name stay the URL's.
"""

import contextlib
import ssl
from collections.abc import AsyncIterator, Iterable
from typing import Any

import httpcore
import httpx
from httpcore import SOCKET_OPTION

from groundwire.verify.ssrf import AddressGuard

_MAX_ADDRESSES = 3  # addresses of one host that are tried in turn
_ATTEMPT = 1.5  # seconds for an address that is not the last


class PinnedBackend(httpcore.AsyncNetworkBackend):
    """Opens connections to the guard's addresses instead of to names; socket files, as in httpcore's base, to none."""

    def __init__(self, guard: AddressGuard, inner: httpcore.AsyncNetworkBackend | None = None) -> None:
        self._guard = guard
        self._inner = inner or httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's signature
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Resolve `host` once, check it, and connect to what was checked."""
        *others, last = (await self._guard.addresses(host, port))[:_MAX_ADDRESSES]
        for address in others:
            with contextlib.suppress(httpcore.ConnectError, httpcore.ConnectTimeout):
                return await self._connect(address, port, _ATTEMPT, local_address, socket_options)
        return await self._connect(last, port, timeout, local_address, socket_options)

    async def _connect(
        self,
        address: str,
        port: int,
        timeout: float | None,  # noqa: ASYNC109 - httpcore's
        local_address: str | None,
        socket_options: Iterable[SOCKET_OPTION] | None,
    ) -> httpcore.AsyncNetworkStream:
        stream = await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
        start_tls = stream.start_tls

        async def start_tls_or_close(*arguments: Any, **named: Any) -> httpcore.AsyncNetworkStream:  # noqa: ANN401 - httpcore's
            try:
                return await start_tls(*arguments, **named)
            except BaseException:  # httpcore closes the connection on errors, not when it is cancelled
                await stream.aclose()
                raise

        stream.start_tls = start_tls_or_close  # type: ignore[method-assign]
        return stream


class _Body(httpx.AsyncByteStream):
    """A response body that is read lazily."""

    def __init__(self, reply: httpcore.Response) -> None:
        self._reply = reply

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._reply.aiter_stream():
            yield part

    async def aclose(self) -> None:
        await self._reply.aclose()


class GuardedTransport(httpx.AsyncBaseTransport):
    """HTTP/1.1 over pinned connections, with no proxy, whatever the environment says."""

    def __init__(
        self,
        guard: AddressGuard,
        *,
        inner: httpcore.AsyncNetworkBackend | None = None,
        ssl_context: ssl.SSLContext | None = None,
        max_connections: int = 32,
    ) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=ssl_context or httpx.create_ssl_context(trust_env=False),
            max_connections=max_connections,
            max_keepalive_connections=max_connections // 2,
            keepalive_expiry=5.0,
            network_backend=PinnedBackend(guard, inner),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request; redirects are the caller's."""
        reply = await self._pool.handle_async_request(
            httpcore.Request(
                method=request.method,
                url=httpcore.URL(
                    scheme=request.url.raw_scheme,
                    host=request.url.raw_host,
                    port=request.url.port,
                    target=request.url.raw_path,
                ),
                headers=request.headers.raw,
                extensions=request.extensions,
            )
        )
        return httpx.Response(
            reply.status, headers=reply.headers, stream=_Body(reply), extensions=reply.extensions
        )

    async def aclose(self) -> None:
        await self._pool.aclose()
