"""The exceptions of slotkeeper: one base, then nouns that say what happened.

For every room to raise and every caller to catch. Not for control flow inside a room, and not for
the errors of other libraries: those are wrapped once, where they come in, with the cause kept.
"""

from __future__ import annotations


class SlotkeeperError(Exception):
    """Base of every error that slotkeeper raises on purpose."""


class InvalidField(SlotkeeperError):
    """A value that a person wrote cannot be accepted.

    Carries the path of the field (``spec.cron[1]``), what is wrong with the value, and what to write
    instead; ``str()`` joins the three, so that every place shows the same text.
    """

    def __init__(self, field: str, problem: str, *, instead: str = "") -> None:
        self.field = field
        self.problem = problem
        self.instead = instead
        super().__init__(f"{field}: {problem}" + (f"; {instead}" if instead else ""))


class UnknownTimeZone(InvalidField):
    """``spec.timeZone`` names no zone of the bundled tz database."""


class NotYetSupported(InvalidField):
    """A field of the public contract that this build cannot serve yet."""


class DatabaseError(SlotkeeperError):
    """Postgres refused a statement; ``sqlstate`` is its code, the driver's error is the cause."""

    def __init__(self, message: str, *, sqlstate: str = "") -> None:
        self.sqlstate = sqlstate
        super().__init__(message)


class DatabaseUnavailable(DatabaseError):
    """Postgres cannot be reached, went away, or accepts no writes; the caller tries again later."""


class DatabaseBusy(DatabaseError):
    """A lock, a deadlock or a time-out stood in the way: nothing was changed, and the caller tries again."""


class PermissionMissing(DatabaseError):
    """The database login may not do this; the message says which grant would allow it."""


class FinishRefused(DatabaseError):
    """Not every run of a batch could be finished by its address (SK001); nothing was changed."""


class LeaseLost(DatabaseError):
    """The worker's lease has ended (SK002): it owns nothing any more."""


class MigrationConflict(SlotkeeperError):
    """A migration that was applied here differs from the file of this version."""


class SchemaMissing(SlotkeeperError):
    """The schema is older than this version, or absent: run ``slotkeeper migrate``."""
