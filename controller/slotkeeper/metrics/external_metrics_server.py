"""Serves an application over TLS with certificates from files, which may change while it serves.

The listening socket stays; when a file has changed, new connections get what it holds now. Not for plain HTTP, which
the metrics server of controller and worker speaks.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

import structlog
from aiohttp import web

from slotkeeper.errors import InvalidField

_log = structlog.stdlib.get_logger()


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the serving certificate with its chain, its key, and the CA that client certificates are verified
    against."""

    certificate: Path
    key: Path
    client_ca: Path

    def content(self) -> tuple[bytes, ...]:
        """What they hold; raises OSError."""
        return tuple(file.read_bytes() for file in (self.certificate, self.key, self.client_ca))

    def context(self) -> ssl.SSLContext:
        """Asks clients for a certificate; without one a connection stands, for probes. Raises OSError or SSLError."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.client_ca))
        context.verify_mode = ssl.CERT_OPTIONAL
        # The cluster's CA is as it is: the API server, too, takes one that lacks a key identifier.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.load_cert_chain(self.certificate, self.key)
        return context


class TlsServer:
    """Listens at ``port`` of every address; 0 takes a free one, which ``port`` then names."""

    def __init__(self, app: web.Application, files: TlsFiles, *, port: int, look_seconds: float = 10.0) -> None:
        self.port = port
        self._files = files
        self._look_seconds = look_seconds
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=5)
        self._socket: socket.socket | None = None
        self._site: web.SockSite | None = None
        self._content: tuple[bytes, ...] = ()

    async def start(self) -> None:
        """Raises InvalidField when a file cannot be used or the port cannot be had."""
        try:
            content, context = self._load()
        except (OSError, ssl.SSLError) as error:
            raise InvalidField(
                "--tls-cert-file, --tls-private-key-file, --requestheader-client-ca-file",
                f"cannot be used ({error})",
                instead="PEM files of a certificate, its key, and a CA",
            ) from error
        try:
            dual_stack = socket.has_dualstack_ipv6()
            self._socket = socket.create_server(
                ("::" if dual_stack else "0.0.0.0", self.port),  # noqa: S104 - pods are reached from everywhere
                family=socket.AF_INET6 if dual_stack else socket.AF_INET,
                dualstack_ipv6=dual_stack,
                backlog=128,
            )
        except OSError as error:
            raise InvalidField(
                "--secure-port", f"port {self.port} cannot be had ({error})", instead="a free one"
            ) from error
        self.port = self._socket.getsockname()[1]
        await self._runner.setup()
        await self._listen(content, context)

    async def follow_files(self) -> None:
        """Looks at the files again and again, for ever."""
        while True:
            await asyncio.sleep(self._look_seconds)
            await self.look()

    async def look(self) -> None:
        """Takes what the files hold now, if that has changed; what cannot be used is told, and the former stays."""
        try:
            content, context = self._load()
        except (OSError, ssl.SSLError) as error:  # such as a key that was written after its certificate
            _log.warning("certificates_unusable", error=str(error))
            return
        if content != self._content:
            await self._listen(content, context)
            _log.info("certificates_changed")

    async def stop(self) -> None:
        """No new connections; requests that run may end."""
        await self._runner.cleanup()
        if self._socket is not None:
            self._socket.close()

    def _load(self) -> tuple[tuple[bytes, ...], ssl.SSLContext]:
        content = self._files.content()
        return content, self._files.context()

    async def _listen(self, content: tuple[bytes, ...], context: ssl.SSLContext) -> None:
        assert self._socket is not None  # noqa: S101 - start() made it
        former = self._site
        self._site = web.SockSite(self._runner, self._socket.dup(), ssl_context=context)
        await self._site.start()
        self._content = content
        if former is not None:
            await former.stop()
