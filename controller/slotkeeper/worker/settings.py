"""What one worker process is told at its start; every field is also a flag of `slotkeeper worker`."""

from __future__ import annotations

from dataclasses import dataclass, field

#: The actions that a worker can run, each of which but ``task`` must be allowed.
ACTIONS = ("task", "command")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Seconds unless said otherwise.

    ``namespaces`` and ``queues`` may be ``*``. ``lease_seconds``: how long the database waits for a sign of life
    before it gives the worker's runs to others (1 to 3600). ``poll_seconds``: the longest sleep of an idle worker.
    ``drain_seconds``: how long a stopping worker waits for its runs before it gives them back. ``handler_process``: the
    program that runs handlers in a process of its own (argv, to which the number of a descriptor is added); empty:
    handlers run in threads of the worker.
    """

    dsn: str
    name: str
    namespace: str = "default"
    pool: str = "default"
    namespaces: tuple[str, ...] = ("default",)
    queues: tuple[str, ...] = ("default",)
    concurrency: int = 20
    allow: frozenset[str] = field(default_factory=lambda: frozenset({"task"}))
    lease_seconds: int = 60
    poll_seconds: float = 5.0
    drain_seconds: float = 30.0
    handler_process: tuple[str, ...] = ()

    @property
    def beat_seconds(self) -> float:
        """Between two beats: a third of the lease, so that one may be lost."""
        return self.lease_seconds / 3

    @property
    def fence_seconds(self) -> float:
        """After the last good beat was sent, a worker must have stopped by then: before anybody else may start."""
        return self.lease_seconds - min(5.0, self.lease_seconds / 6)
