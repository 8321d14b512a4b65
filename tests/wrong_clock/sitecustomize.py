"""Sets the wall clock of a Python process wrong, from its first line on: PYTHONPATH names this folder.

CLOCK_AHEAD_SECONDS says by how much. Two files may be named: once CLOCK_CORRECTED_ONCE is there, the clock is right; in
CLOCK_SHOWN_IN stands what it showed when the process began. Monotonic clocks are left alone, as by a real step.
"""

from __future__ import annotations

import datetime
import os
import time
from typing import Any

_AHEAD = float(os.environ.get("CLOCK_AHEAD_SECONDS", "0"))
_CORRECTED = os.environ.get("CLOCK_CORRECTED_ONCE", "")
_time, _time_ns, _datetime = time.time, time.time_ns, datetime.datetime


def _ahead() -> float:
    return 0.0 if _CORRECTED and os.path.exists(_CORRECTED) else _AHEAD  # noqa: PTH110 - pathlib is not there yet


class _IsAnInstant(type):
    """What C code makes is of the class that was there before."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _datetime)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, _datetime)


class _WrongDatetime(_datetime, metaclass=_IsAnInstant):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        return _datetime.now(tz) + datetime.timedelta(seconds=_ahead())


if _AHEAD:
    time.time = lambda: _time() + _ahead()
    time.time_ns = lambda: _time_ns() + int(_ahead() * 1e9)
    _WrongDatetime.__name__ = _WrongDatetime.__qualname__ = "datetime"
    _WrongDatetime.__module__ = "datetime"
    datetime.datetime = _WrongDatetime  # type: ignore[misc]
    if shown_in := os.environ.get("CLOCK_SHOWN_IN"):
        with open(shown_in, "w") as stream:  # noqa: PTH123
            stream.write(datetime.datetime.now(datetime.UTC).isoformat())
