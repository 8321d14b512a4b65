"""A small HTTP server in a thread and an event loop of its own, so that no scrape ever delays a claim or a tick.

Plain HTTP for probes and scrapes inside a cluster; nothing that changes anything, no authentication. What it serves is
registered by others.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiohttp import web

from slotkeeper.errors import InvalidField
from slotkeeper.metrics.address import Address

#: Registers routes; called in the server's thread before the first request.
Routes = Callable[[web.Application], None]

_BACKLOG = 64
_CLOSE_SECONDS = 2.0


class HttpServer:
    """Listens from ``start`` to ``stop``; ``flag`` is named when it cannot."""

    def __init__(self, address: Address, routes: Sequence[Routes], *, flag: str = "--listen") -> None:
        self._routes = routes
        self._socket = _listening_socket(address, flag)
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    @property
    def port(self) -> int:
        """That it listens on."""
        return int(self._socket.getsockname()[1])

    def start(self) -> None:
        """Starts the thread; requests that came before are answered then."""
        self._thread.start()

    def stop(self) -> None:
        """No more requests; waits for those under way, but not for long."""
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop has ended by itself
                self._loop.call_soon_threadsafe(self._stopped.set)
            self._thread.join(2 * _CLOSE_SECONDS)
        self._socket.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.run_until_complete(asyncio.sleep(0))
            self._loop.close()

    async def _serve(self) -> None:
        application = web.Application()
        for register in self._routes:
            register(application)
        runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=_CLOSE_SECONDS)
        await runner.setup()
        try:
            await web.SockSite(runner, self._socket, backlog=_BACKLOG).start()
            await self._stopped.wait()
        finally:
            await runner.cleanup()


def _listening_socket(address: Address, flag: str) -> socket.socket:
    """Bound at once and in the caller's thread, so that a port that is taken ends the command with one line."""
    opened: socket.socket | None = None
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, target = found[0]
        opened = socket.socket(family, kind, protocol)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(target)
        opened.listen(_BACKLOG)
        return opened
    except OSError as error:
        if opened is not None:
            opened.close()
        # Of a failed bind asyncio and getaddrinfo say different things; the system's word is enough.
        problem = os.strerror(error.errno) if error.errno is not None and error.errno > 0 else error.strerror
        raise InvalidField(
            flag, f"cannot listen on {address}: {problem}", instead="another ADDRESS:PORT, or off"
        ) from error


#: A probe: None when all is well, or else what is wrong, in a few words.
Probe = Callable[[], Awaitable[str | None]]


def probe_routes(live: Probe, ready: Probe) -> Routes:
    """``/livez`` and ``/readyz``: 200 ``ok``, or 503 with what is wrong."""

    def answer(probe: Probe) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(_: web.Request) -> web.Response:
            problem = await probe()
            return web.Response(text=f"{problem or 'ok'}\n", status=503 if problem else 200)

        return handle

    def register(application: web.Application) -> None:
        application.router.add_get("/livez", answer(live))
        application.router.add_get("/readyz", answer(ready))

    return register


async def turns(loop: asyncio.AbstractEventLoop, seconds: float) -> bool:
    """Whether another thread's event loop does what it is asked within ``seconds``."""

    async def nothing() -> None:
        return None

    asked: Any = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(nothing(), loop))
    done, _ = await asyncio.wait([asked], timeout=seconds)
    return bool(done)
