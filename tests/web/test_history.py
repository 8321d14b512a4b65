"""How far history is read for a page: everything once, in order, and never more than is bounded."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from slotkeeper.web.history import MOST_READ, Cursor, read_back

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
OLDEST = NOW - timedelta(days=120)
Row = tuple[datetime, str]


class Rows:
    """A history in memory that notes what it is asked for."""

    def __init__(self, rows: list[Row], matching: set[str] | None = None) -> None:
        self.rows = sorted(rows, reverse=True)
        self.matching = matching
        self.read_rows = 0

    def count(self, after: datetime, until: datetime, most: int) -> int:
        return min(most, sum(after < moment <= until for moment, _ in self.rows))

    def read(self, after: datetime, at: Cursor, limit: int) -> list[Row]:
        inside = [row for row in self.rows if after < row[0] <= at.moment]
        if at.id is not None:
            inside = [row for row in inside if row < (at.moment, at.id)]
        self.read_rows += len(inside)
        return [row for row in inside if self.matching is None or row[1] in self.matching][:limit]

    def page(self, start: Cursor, limit: int = 50) -> tuple[list[Row], Cursor | None]:
        page = read_back(
            start, NOW, OLDEST, limit, count=self.count, read=self.read, cursor_of=lambda row: Cursor(*row)
        )
        return list(page.rows), page.next

    def all_pages(self, limit: int) -> list[Row]:
        found: list[Row] = []
        place: Cursor | None = Cursor(NOW)
        while place is not None:
            rows, following = self.page(place, limit)
            assert len(rows) <= limit
            assert following != place
            found += rows
            place = following
        return found


@given(
    st.lists(st.tuples(st.integers(0, 119 * 86400 * 100), st.integers(0, 3)), max_size=60, unique=True),
    st.integers(1, 20),
)
def test_pages_hold_every_row_once_and_in_order(ages: list[tuple[int, int]], limit: int) -> None:
    rows = [(NOW - timedelta(milliseconds=10 * age), str(id_)) for age, id_ in ages]
    assert Rows(rows).all_pages(limit) == sorted(rows, reverse=True)


def test_rows_of_one_instant_span_pages() -> None:
    rows = [(NOW - timedelta(hours=1), f"{number:03}") for number in range(120)]
    assert Rows(rows).all_pages(50) == sorted(rows, reverse=True)


def test_a_rare_filter_stops_and_says_from_where_it_goes_on() -> None:
    rows = [(NOW - timedelta(seconds=number), f"{number:06}") for number in range(4 * MOST_READ)]
    history = Rows(rows, matching={f"{3 * MOST_READ:06}"})
    found, place = history.page(Cursor(NOW))
    assert found == []
    assert place is not None
    assert OLDEST < place.moment < NOW
    assert history.read_rows <= 2 * MOST_READ
    assert history.all_pages(50) == [rows[3 * MOST_READ]]


def test_a_dense_moment_is_read_alone() -> None:
    rows = [(NOW - timedelta(milliseconds=number), f"{number:06}") for number in range(2 * MOST_READ)]
    history = Rows(rows)
    found, _ = history.page(Cursor(NOW))
    assert found == sorted(rows, reverse=True)[:50]
    assert history.read_rows <= MOST_READ
