"""The worker's lease: a heartbeat in a thread with a connection of its own, and the self-fence.

One row per worker carries the lease, so a beat costs the same whatever the worker holds. A worker that cannot
renew must have stopped before anybody else may start its runs: it fences itself, by its own clock, counted from
before the last good beat was sent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import structlog

from slotkeeper.database_clock import boot_seconds
from slotkeeper.errors import SlotkeeperError
from slotkeeper.store.worker import HeartbeatStore
from slotkeeper.worker.settings import WorkerSettings

_log = structlog.stdlib.get_logger()

#: After the process was frozen, one beat is tried before it fences itself: nobody may have noticed.
_THAW_GRACE = 2.0


class Lease:
    """Callbacks come from the heartbeat's thread: ``on_reaped`` once, ``on_cancel`` with run ids at a beat."""

    def __init__(
        self, settings: WorkerSettings, worker: int, registered_at: float,
        *, on_reaped: Callable[[], None], on_cancel: Callable[[Sequence[int]], None],
    ) -> None:  # fmt: skip
        self._settings = settings
        self._store = HeartbeatStore(settings.dsn, worker)
        self._on_reaped, self._on_cancel = on_reaped, on_cancel
        self._good = registered_at
        self._reaped = False
        self._stopping = False
        self._wake = threading.Event()
        self._checked = boot_seconds()
        self._grace_until = 0.0
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    @property
    def check_seconds(self) -> float:
        """How often ``fenced`` should be asked."""
        return min(1.0, self._settings.lease_seconds / 20)

    def fenced(self) -> bool:
        """Whether the worker must hold nothing now. Ask it every ``check_seconds``: it notices that we were frozen."""
        now = boot_seconds()
        if now - self._checked > 2 * self.check_seconds + 0.5:
            self._grace_until = now + min(_THAW_GRACE, self._settings.lease_seconds / 6)
            self._wake.set()
        self._checked = now
        if self._reaped:
            return True
        return now - self._good > self._settings.fence_seconds and now > self._grace_until

    def doubtful(self) -> bool:
        """Whether the lease may have ended. While nobody has noticed, a beat renews it: so do not reap before."""
        return boot_seconds() - self._good > self._settings.fence_seconds

    def beat_now(self) -> None:
        """The next beat is sent at once."""
        self._wake.set()

    def stop(self) -> None:
        """Ends the heartbeat."""
        self._stopping = True
        self._wake.set()
        self._thread.join(5)

    def _run(self) -> None:
        failures = 0
        # Registering was the first beat.
        self._wake.wait(self._settings.beat_seconds)
        while not self._stopping:
            self._wake.clear()
            sent = boot_seconds()
            try:
                beat = self._store.beat()
            except Exception as error:  # noqa: BLE001 - a heartbeat that ended would leave the worker fenced for ever
                failures += 1
                if failures == 1:
                    _log.warning(
                        "beat_failed", worker=self._settings.name, error=str(error),
                        exc_info=not isinstance(error, SlotkeeperError),
                    )  # fmt: skip
                self._wake.wait(min(1.0, self._settings.lease_seconds / 20))
                continue
            failures = 0
            if beat is None:
                self._reaped = True
                self._on_reaped()
                break
            self._good = sent
            if beat.cancelled:
                self._on_cancel(beat.cancelled)
            self._wake.wait(self._settings.beat_seconds)
        self._store.close()
