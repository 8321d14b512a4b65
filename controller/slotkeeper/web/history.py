"""How far history is read for one page: in ranges that are counted first, wider where it is thin, narrower where dense.

Pure but for the two questions that the caller answers. So a page with a rare filter reads a bounded number of rows and
says from where it goes on, instead of all history.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, TypeVar

_Row = TypeVar("_Row")

#: At most so many rows are read for one page, whether they are shown or not.
MOST_READ = 5_000
_FIRST_RANGE, _NARROWEST, _FACTOR = timedelta(minutes=10), timedelta(milliseconds=100), 8


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where the next page begins: at ``moment``, and of the rows at that very instant below ``id``."""

    moment: datetime
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Page(Generic[_Row]):
    """The rows of a page, and where the next one begins; ``next`` None: nothing older is kept.

    ``searched_to`` is set when the page ended before it was full: older rows have not been looked at.
    """

    rows: Sequence[_Row]
    next: Cursor | None
    searched_to: datetime | None = None


def read_back(
    start: Cursor | None,
    now: datetime,
    oldest: datetime,
    limit: int,
    *,
    count: Callable[[datetime, datetime, int], int],
    read: Callable[[datetime, Cursor, int], Sequence[_Row]],
    cursor_of: Callable[[_Row], Cursor],
) -> Page[_Row]:
    """Up to ``limit`` rows from ``start``, or ``now`` if that is earlier or no start is given, back to ``oldest``.

    ``count(after, until, most)`` counts all rows of a range, ``read(after, until, limit)`` gives those that match, the
    latest first.
    """
    rows: list[_Row] = []
    at = Cursor(now) if start is None or start.moment > now else start
    width, seen = _FIRST_RANGE, 0
    while at.moment > oldest and seen < MOST_READ:
        after = max(at.moment - width, oldest)
        found = count(after, at.moment, MOST_READ + 1)
        if found > MOST_READ and width > _NARROWEST:
            width /= _FACTOR
            continue
        wanted = limit - len(rows) + 1  # one more tells whether there is another page
        rows += read(after, at, wanted)
        if len(rows) > limit:
            return Page(rows[:limit], cursor_of(rows[limit - 1]))
        seen += found
        at = Cursor(after)
        # As wide as holds about half of what may be read, if history goes on as it was.
        width *= min(_FACTOR, max(1.0, MOST_READ / 2 / max(found, 1)))
    if at.moment <= oldest:
        return Page(rows, None)
    return Page(rows, at, searched_to=at.moment)
