"""Error texts that can always be stored: recording a failure must never fail.

Postgres stores no U+0000 and nothing that is not UTF-8, and nobody reads megabytes. Not for logs.
"""

from __future__ import annotations

import signal

#: Bytes of UTF-8 that are kept of a message.
LONGEST = 8 * 1024
_FALLBACK = "error text could not be stored"


def error_text(error: BaseException) -> str:
    """What ``error`` says, cleaned and cut; the fallback text when it cannot even say it."""
    try:
        return clean(str(error))
    except BaseException:  # noqa: BLE001 - a broken __str__ must not stop the outcome from being recorded
        return _FALLBACK


def clean(text: str, longest: int = LONGEST) -> str:
    """``text`` without NUL and lone surrogates (shown as escapes), cut on a character boundary with a mark."""
    readable = text.replace("\0", "\\x00").encode("utf-8", "backslashreplace")
    if len(readable) <= longest:
        return readable.decode()
    mark = f"...[truncated, {len(readable)} bytes]"
    return readable[: longest - len(mark)].decode("utf-8", "ignore") + mark


def clean_bytes(output: bytes, longest: int = 4 * 1024) -> str:
    """The end of a program's output as text: bytes that are not UTF-8 are shown as escapes."""
    return clean(output[-longest:].decode("utf-8", "backslashreplace"))


def signal_name(number: int) -> str:
    """``SIGSEGV``, or ``Signal44``: most real-time signals have no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"Signal{number}"
