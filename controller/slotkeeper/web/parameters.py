"""What a request asks for: filters and places in a list, checked before anything is read.

Every refusal is an InvalidField that names the parameter and what to write instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from slotkeeper.errors import InvalidField
from slotkeeper.web.history import Cursor
from slotkeeper.web.wording import rfc3339

STATES = ("Active", "Suspended", "Held", "Unwatched", "NoNextSlot")
HEALTHS = ("DeadRuns", "NoWorker", "SuccessOverdue", "NeverSucceeded", "NotYetDue", "Succeeding")
LIVE = ("ready", "running")
ENDED = ("done", "dead", "skipped", "superseded", "cancelled")
_LONGEST = 253
_LARGEST_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ScheduleFilter:
    """``name`` is a part of the name; ``after`` is (cluster, namespace, name) of the last one seen."""

    namespace: str | None
    name: str | None
    state: str | None
    health: str | None
    after: tuple[str, str, str]

    def query(self) -> dict[str, str]:
        """Its parameters, but for the place."""
        return _given(namespace=self.namespace, name=self.name, state=self.state, health=self.health)


@dataclass(frozen=True, slots=True)
class RunFilter:
    """``before`` is a place in what has ended, ``after`` the id of the last live run seen."""

    namespace: str | None
    status: str | None
    before: Cursor | None
    after: int

    def query(self) -> dict[str, str]:
        """Its parameters, but for the places."""
        return _given(namespace=self.namespace, status=self.status)


def schedule_filter(query: Mapping[str, str]) -> ScheduleFilter:
    """The filter of a list of schedules. Raises InvalidField."""
    _known(query, "namespace", "name", "state", "health", "after")
    after = _text(query, "after")
    parts = (after or "//").split("/")
    if len(parts) != 3:
        raise InvalidField("after", f"{after!r} is no place in the list", instead="write CLUSTER/NAMESPACE/NAME")
    return ScheduleFilter(
        _text(query, "namespace"), _text(query, "name"), _one_of(query, "state", STATES),
        _one_of(query, "health", HEALTHS), (parts[0], parts[1], parts[2]),
    )  # fmt: skip


def run_filter(query: Mapping[str, str], statuses: tuple[str, ...] = (*LIVE, *ENDED)) -> RunFilter:
    """The filter of a list of runs. Raises InvalidField."""
    _known(query, "namespace", "status", "before", "after")
    return RunFilter(
        _text(query, "namespace"), _one_of(query, "status", statuses), _cursor(_text(query, "before")),
        _id(_text(query, "after")),
    )  # fmt: skip


def cursor_text(cursor: Cursor) -> str:
    """A place as a parameter: the instant, and the id behind a tilde."""
    return rfc3339(cursor.moment) + ("" if cursor.id is None else f"~{cursor.id}")


def no_parameters(query: Mapping[str, str]) -> None:
    """For pages that take none. Raises InvalidField."""
    _known(query)


def _cursor(text: str | None) -> Cursor | None:
    if text is None:
        return None
    moment, _, id_ = text.partition("~")
    try:
        given = datetime.fromisoformat(moment)
        at = None if given.tzinfo is None else given.astimezone(UTC)
    except (ValueError, OverflowError):  # the latter: in UTC it is before the year 1 or after 9999
        at = None
    if at is None:
        raise InvalidField(
            "before", f"{text!r} is no place in the list", instead="write an instant such as 2026-11-30T12:00:00Z"
        )
    return Cursor(at, id_ or None)


def _id(text: str | None) -> int:
    if text is None:
        return 0
    if not text.isascii() or not text.isdecimal() or int(text) > _LARGEST_ID:
        raise InvalidField("after", f"{text!r} is no id of a run", instead="write a whole number")
    return int(text)


def _known(query: Mapping[str, str], *names: str) -> None:
    for name in query:
        if name not in names:
            known = ", ".join(names) or "none"
            raise InvalidField("query", f"{name!r} is no parameter here", instead=f"those are: {known}")


def _text(query: Mapping[str, str], name: str) -> str | None:
    value = query.get(name, "").strip()
    longest = 3 * _LONGEST + 2 if name in ("after", "before") else _LONGEST
    if len(value) > longest or not value.isprintable():
        raise InvalidField(name, f"{value[:60]!r} is no name", instead=f"write at most {longest} printable characters")
    return value or None


def _one_of(query: Mapping[str, str], name: str, words: tuple[str, ...]) -> str | None:
    value = query.get(name, "")
    if value and value not in words:
        raise InvalidField(name, f"{value[:60]!r} is not known", instead=f"write one of {', '.join(words)}")
    return value or None


def _given(**values: str | None) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}
