"""Where a server listens, as a person writes it. Apart from the server, so that reading a flag imports no HTTP."""

from __future__ import annotations

from dataclasses import dataclass

from slotkeeper.errors import InvalidField

#: Every address of the pod: whoever may reach its port may scrape and probe it.
EVERYWHERE = "0.0.0.0:8080"


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen. ``port`` 0: any that is free."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, flag: str) -> Address | None:
        """``HOST:PORT`` or ``[HOST]:PORT``; None for ``off`` or nothing. Raises InvalidField that names ``flag``."""
        if text in ("", "off"):
            return None
        host, colon, port = text.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        number = int(port) if port.isascii() and port.isdecimal() else -1
        if not colon or not host or not 0 <= number <= 65535 or (":" in host and not bracketed):
            raise InvalidField(flag, f"{text!r} is not ADDRESS:PORT", instead="0.0.0.0:8080, [::]:8080 or off")
        return cls(host.strip("[]"), number)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
