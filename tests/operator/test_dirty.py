"""The dirty keys: latest wins, nothing is lost."""

from __future__ import annotations

import pytest

from slotkeeper.operator import dirty
from slotkeeper.operator.dirty import DirtyKeys

KEY = ("billing", "report")


def test_the_latest_change_wins_and_is_taken_once() -> None:
    told: list[int] = []
    keys = DirtyKeys(lambda: told.append(1))
    keys.mark(KEY, "uid-1", {"v": 1})
    keys.mark(KEY, "uid-1", None)
    keys.mark(("billing", "other"), "uid-2", {})
    assert len(told) == 3
    taken = keys.take(1)
    assert list(taken) == [KEY]
    assert taken[KEY].body is None
    assert list(keys.take(10)) == [("billing", "other")]
    assert keys.take(10) == {}


def test_a_failure_waits_and_never_replaces_something_newer(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = DirtyKeys()
    keys.mark(KEY, "uid-1", {"v": 1})
    failed = keys.take(1)[KEY]
    monkeypatch.setattr(dirty.random, "uniform", lambda _, high: high)
    keys.put_back(KEY, failed)
    assert keys.take(1) == {}  # not before its time
    assert len(keys) == 1
    assert keys.oldest_age > 0
    keys.mark(KEY, "uid-1", {"v": 2})  # news is due at once
    assert keys.take(1)[KEY].body == {"v": 2}
    keys.mark(KEY, "uid-1", {"v": 3})
    keys.put_back(KEY, failed)
    assert keys.take(1)[KEY].body == {"v": 3}
