"""A network between a controller and the API server that the test may break: packets vanish, and nobody is told."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from api_server import ApiServer


class Network:
    """A relay of TCP connections on loopback.

    Connections that were open when packets began to vanish are dead for good: neither side hears of it, as when a
    firewall has forgotten them. New ones wait until packets pass again.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._passes = threading.Event()
        self._passes.set()
        self._outages = 0
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_packets(self) -> None:
        """From now on nothing arrives, in neither direction."""
        self._outages += 1
        self._passes.clear()

    def pass_packets(self) -> None:
        """New connections work again."""
        self._passes.set()

    def cut(self) -> None:
        """Closes every connection; new ones work."""
        for connection in self._sockets:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        self._passes.set()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=[connection], daemon=True).start()

    def _connect(self, inner: socket.socket) -> None:
        self._passes.wait()
        with suppress(OSError), inner, socket.create_connection(self._target) as outer:
            self._sockets += [inner, outer]
            back = threading.Thread(target=self._relay, args=[outer, inner], daemon=True)
            back.start()
            self._relay(inner, outer)
            back.join()

    def _relay(self, source: socket.socket, target: socket.socket) -> None:
        born = self._outages
        with suppress(OSError):
            while data := source.recv(65536):
                while self._outages != born:
                    threading.Event().wait()  # for ever: this thread and its packets are lost
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)


@contextmanager
def network(api_server: ApiServer, folder: Path, kubeconfig: Path | None = None) -> Iterator[tuple[Network, Path]]:
    """A network to the API server, and what leads through it: ``kubeconfig``, or else that of all rights."""
    config: dict[str, Any] = yaml.safe_load((kubeconfig or api_server.kubeconfig).read_text())
    cluster = config["clusters"][0]["cluster"]
    address = urlsplit(cluster["server"])
    assert address.hostname is not None
    between = Network(address.hostname, address.port or 443)
    cluster["server"] = f"https://127.0.0.1:{between.port}"
    through = folder / "through-the-network.kubeconfig"
    through.write_text(yaml.safe_dump(config))
    try:
        yield between, through
    finally:
        between.close()
