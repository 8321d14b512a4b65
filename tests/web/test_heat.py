"""The heat map: which hour shows what, in words and with the worst first."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from slotkeeper.store.web import SlotsOfHour
from slotkeeper.web.heat import SIGNS, Cell, first_hour, heat_map

NOW = datetime(2026, 11, 30, 17, 20, tzinfo=UTC)
HOUR = timedelta(hours=1)


def row(slot: datetime, status: str, reason: str | None = None, *, last: datetime | None = None, slots: int = 1,
        late: int = 0) -> SlotsOfHour:  # fmt: skip
    return SlotsOfHour(slot, last or slot, status, reason, slots, late, 90.0 if late else None)


def cells(*rows: SlotsOfHour, days: int = 2) -> dict[datetime, Cell]:
    return {cell.hour: cell for day in heat_map(rows, NOW, days) for cell in day.cells}


def test_today_is_first_and_each_day_has_24_hours() -> None:
    days = heat_map([], NOW, 3)
    assert [day.date for day in days] == [date(2026, 11, 30), date(2026, 11, 29), date(2026, 11, 28)]
    assert {len(day.cells) for day in days} == {24}
    assert days[-1].cells[0].hour == first_hour(NOW, 3)
    assert {(cell.worst, cell.sign, cell.slots) for day in days for cell in day.cells} == {("none", "", 0)}


def test_the_worst_of_an_hour_colours_it_and_the_words_say_all() -> None:
    slot = datetime(2026, 11, 30, 3, tzinfo=UTC)
    found = cells(
        row(slot, "done", slots=4), row(slot + HOUR / 2, "dead", "NonRetryable"), row(slot, "skipped", "Overlap")
    )
    cell = found[slot]
    assert (cell.worst, cell.sign, cell.slots) == ("dead", "×", 6)
    assert cell.text == "2026-11-30 03:00: 1 dead (NonRetryable), 1 skipped (Overlap), 4 done"


def test_late_is_worse_than_done_and_says_by_how_much() -> None:
    slot = datetime(2026, 11, 30, 3, tzinfo=UTC)
    cell = cells(row(slot, "done", slots=3, late=2))[slot]
    assert (cell.worst, cell.text) == ("late", "2026-11-30 03:00: 3 done, 2 of them late, by up to 1 min 30 s")


def test_a_range_colours_every_hour_that_it_spans() -> None:
    first, last = datetime(2026, 11, 29, 22, 30, tzinfo=UTC), datetime(2026, 11, 30, 1, 10, tzinfo=UTC)
    found = cells(row(first, "superseded", "Superseded", last=last, slots=17))
    coloured = sorted(hour for hour, cell in found.items() if cell.worst == "superseded")
    assert coloured == [datetime(2026, 11, 29, 22, tzinfo=UTC) + number * HOUR for number in range(4)]
    assert found[coloured[1]].text == "2026-11-29 23:00: 17 superseded (Superseded)"


def test_what_lies_outside_is_left_out() -> None:
    long_ago = datetime(2026, 11, 1, tzinfo=UTC)
    found = cells(row(long_ago, "done"), row(long_ago, "skipped", "Late", last=NOW + 9 * HOUR, slots=9))
    assert {cell.worst for hour, cell in found.items() if hour <= NOW} == {"skipped"}
    assert {cell.worst for hour, cell in found.items() if hour > NOW} == {"none"}
    assert len(found) == 48


@pytest.mark.parametrize("status", SIGNS)
def test_every_status_has_a_sign_of_its_own(status: str) -> None:
    assert len(set(SIGNS.values())) == len(SIGNS)
    slot = datetime(2026, 11, 30, tzinfo=UTC)
    assert cells(row(slot, "done" if status == "late" else status, late=status == "late"))[slot].sign == SIGNS[status]
