"""The dashboard's HTTP server, in a thread and an event loop of its own: nothing of the controller waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import structlog
from aiohttp import web

from slotkeeper.web.listen import ListenAddress
from slotkeeper.web.reader import Reader
from slotkeeper.web.site import application

_log = structlog.stdlib.get_logger()
#: Between two tries to listen, while another process has the port.
_AGAIN_SECONDS = 5.0
_START_SECONDS = 10.0


class Dashboard:
    """Serves from ``start`` to ``stop``. A port that is taken is asked for again, and again: the dashboard is never a
    reason for its process to end.

    ``any_port``: rather take another port at once.
    """

    def __init__(self, dsn: str, address: ListenAddress, *, any_port: bool = False) -> None:
        self._dsn = dsn
        self._address = address
        self._any_port = any_port
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._tried = threading.Event()
        self._url: str | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="dashboard", daemon=True)

    def start(self) -> str | None:
        """Starts the thread; returns the address of the first page, or None when the port is taken."""
        self._thread.start()
        self._tried.wait(_START_SECONDS)
        return self._url

    def stop(self, *, seconds: float = 5) -> None:
        """Stops listening; waits at most ``seconds``."""
        if self._loop is not None and self._stopping is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended by itself
                self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(seconds)

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        reader = Reader(self._dsn)
        runner = web.AppRunner(application(reader), access_log=None, handle_signals=False, shutdown_timeout=1.0)
        try:
            await runner.setup()
            await self._listen(runner)
            await self._stopping.wait()
        finally:
            self._tried.set()
            await runner.cleanup()
            reader.close()

    async def _listen(self, runner: web.AppRunner) -> None:
        stopping, port, told = self._stopping, self._address.port, False
        while stopping is not None and not stopping.is_set():
            try:
                await web.TCPSite(runner, self._address.host, port).start()
            except OSError as error:
                if self._any_port and port:
                    port = 0
                    continue
                if not told:
                    _log.warning(
                        "dashboard_not_listening", flag="--dashboard-listen", error=error.strerror or str(error)
                    )
                told = True
                self._tried.set()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), _AGAIN_SECONDS)
            else:
                self._url = self._address.url(runner.addresses[0][1])
                self._tried.set()
                _log.info("dashboard", url=self._url)
                return
