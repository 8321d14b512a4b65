"""What a controller shows of its operator: who leads, its watches, and a full resync that did not believe its list."""

from __future__ import annotations

from collections.abc import Callable

import scenario
from controller_place import controller_place
from processes import eventually
from scenario import add_schedule
from slotkeeper.operator import Operator


def test_leader_watches_and_the_brake(dsn: str, namespace: str, new_operator: Callable[..., Operator]) -> None:
    """A schedule is stored, and the list is empty: nothing is retired before a second list says the same."""
    with scenario.connect(dsn) as connection:
        add_schedule(connection, namespace=namespace)
    leading, following = (new_operator(namespaces=[namespace]) for _ in range(2))
    leading.start()
    eventually(lambda: leading.syncer.last_resync is not None, "a full resync")
    following.start()
    with controller_place(dsn, operator=leading) as leader, controller_place(dsn, operator=following) as follower:
        shown = leader.scrape()
        assert shown.value("slotkeeper_leader") == 1
        assert shown.value("slotkeeper_watch_pump_restarts_total", watched=namespace) == 0
        assert shown.value("slotkeeper_resync_braked_schedules", watched=namespace) == 1
        assert shown.value("slotkeeper_resync_failed", watched=namespace) == 0
        assert shown.value("slotkeeper_actor_failures", actor="syncer") == 0
        assert follower.scrape().value("slotkeeper_leader") == 0
        for actor in (*leader.parts.actors[:3],):
            actor.start()
        assert leader.status("/livez") == 200
        leading.syncer.actor.stop()
        assert leader.status("/livez") == 503
