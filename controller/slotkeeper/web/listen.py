"""Where the dashboard listens: a loopback address, because nobody is authenticated."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

from slotkeeper.errors import InvalidField

#: The address unless another is asked for.
DEFAULT_LISTEN = "127.0.0.1:8081"
_FLAG = "--dashboard-listen"


class ListenAddress(NamedTuple):
    """A loopback address and a port; port 0 lets the system choose one."""

    host: str
    port: int

    def url(self, port: int | None = None) -> str:
        """The address of the first page."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port if port is None else port}/"


def listen_address(text: str) -> ListenAddress | None:
    """``ADDRESS:PORT`` as values; None for ``off``.

    Raises InvalidField when it is neither, or when the address is not a loopback address.
    """
    if text == "off":
        return None
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not colon or not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise InvalidField(_FLAG, f"{text!r} is not ADDRESS:PORT", instead=f"write {DEFAULT_LISTEN}, or off")
    if ":" in bare and not (host.startswith("[") and host.endswith("]")):
        raise InvalidField(_FLAG, f"{text!r} is not ADDRESS:PORT", instead=f"write [::1]:{port}")
    if bare == "localhost":
        return ListenAddress("127.0.0.1", int(port))
    if not is_loopback(bare):
        raise InvalidField(
            _FLAG,
            f"{text!r} is not a loopback address, and the dashboard asks nobody who they are",
            instead=f"write 127.0.0.1:{port}, and reach it by kubectl port-forward or an SSH tunnel",
        )
    return ListenAddress(bare, int(port))


def is_loopback(host: str) -> bool:
    """Whether ``host`` is an address of this machine alone; names are not looked up."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def names_loopback(host_header: str) -> bool:
    """Whether the Host of a request is ``localhost`` or a loopback address, with any port.

    A page of somebody else whose name was made to lead to 127.0.0.1 sends that name: so it reads nothing here.
    """
    host = host_header.strip().lower()
    if host.startswith("["):
        name, _, rest = host[1:].partition("]")
        port = rest.removeprefix(":")
        return (not rest or rest.startswith(":")) and (not port or port.isdecimal()) and is_loopback(name)
    name, _, port = host.partition(":")
    return (not port or port.isdecimal()) and (name == "localhost" or is_loopback(name))
