"""Which lanes a claim looks at first."""

from __future__ import annotations

from slotkeeper.worker.claim_loop import in_turn

LANES = [(7, 2), (1, 0), (3, 0), (5, 0), (2, -1)]


def test_priorities_keep_their_order_and_equals_take_turns() -> None:
    assert [in_turn(LANES, turn) for turn in (3, 4, 5)] == [[7, 1, 3, 5, 2], [7, 3, 5, 1, 2], [7, 5, 1, 3, 2]]


def test_no_lanes() -> None:
    assert in_turn([], 1) == []
