"""`--isolation process`: what a handler does to its process costs one attempt; and nothing outlives its worker."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import scenario
from applied_schedules import AppliedSchedules
from databases import new_database
from processes import OwnProcess, eventually, own_processes
from slotkeeper.cli.embedded_postgres import EmbeddedPostgres
from worker_place import Place

HANDLERS = Path(__file__).parent / "isolated_handlers.py"
IMPATIENT = Path(__file__).parent / "impatient_worker.py"
NEVER = {"initialBackoffSeconds": 86400, "maxBackoffSeconds": 86400}
CONCURRENCY = 4


@pytest.fixture(scope="module")
def isolated(
    postgres: EmbeddedPostgres, template_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """A database with one worker whose handlers run in processes; it outlives them all."""
    folder = tmp_path_factory.mktemp("isolated-worker")
    with (
        new_database(postgres, template_database) as dsn,
        own_processes(folder) as processes,
        scenario.connect(dsn) as connection,
    ):
        connection.execute("create table effect (run bigint, attempt int)")
        place = Place(dsn, connection, processes, AppliedSchedules(dsn, connection), HANDLERS)
        worker = place.worker(isolation="process", concurrency=CONCURRENCY, EFFECTS_DSN=dsn)
        yield place
        place.schedules.close()
        assert worker.running, f"a run ended the worker:\n{worker.text()[-3000:]}"


@pytest.fixture
def own(place: Place) -> Place:
    """A place of the test's own."""
    place.handlers = HANDLERS
    return place


def children(pid: int) -> set[int]:
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.add(int(stat.parent.name))
        except OSError:  # it has ended meanwhile
            continue
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pids: set[int]) -> None:
    eventually(lambda: not any(alive(pid) for pid in pids), f"{pids} gone")


# --- deaths ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "payload", "words"),
    [
        ("segfault", {}, "killed by signal 11 (SIGSEGV)"),
        ("exit", {"status": 7}, "exit status 7"),
        ("exit", {"status": 0}, "exit status 0"),
        ("close_everything", {}, "exit status 1"),
        ("babble", {}, "killed by signal 9 (SIGKILL)"),
    ],
)
def test_a_handler_that_ends_its_process_costs_one_attempt(
    isolated: Place, task: str, payload: dict[str, Any], words: str
) -> None:
    beside = isolated.enqueue("sleep.in_thread", '{"seconds": 0.5}')
    run = isolated.enqueue(task, json.dumps(payload))
    waiting = isolated.returned(run)
    assert waiting.charged == 1
    assert isolated.errors(run) == [(1, "HandlerDied", words)]
    isolated.hurry(run)
    assert isolated.ended(run).attempts == 2
    assert isolated.ended(beside).attempts == 1


def test_what_a_dead_handler_has_started_goes_with_it(isolated: Place) -> None:
    run = isolated.enqueue("parent", '{"dies": true}', max_attempts=1)
    assert isolated.ended(run, "dead").last_error == "HandlerDied: killed by signal 9 (SIGKILL)"
    gone({isolated.began(run)["child"]})


def test_a_copy_of_a_dead_process_does_not_hold_its_run(isolated: Place) -> None:
    """It has left the group and holds the connection open."""
    run = isolated.enqueue("fork", max_attempts=1)
    assert isolated.ended(run, "dead").last_error == "HandlerDied: exit status 5"
    os.kill(isolated.began(run)["child"], signal.SIGKILL)


def test_a_process_that_cannot_start_gives_its_run_back_unstarted(own: Place) -> None:
    worker = own.worker(isolation="process", BROKEN_CHILDREN="1")
    run = own.enqueue("succeed")
    waiting = own.returned(run)
    assert (waiting.charged, waiting.started_at) == (0, None)
    assert waiting.last_error == "NoHandler: a handler process did not start: exit status 1"
    assert "this module can be imported by the worker alone" in worker.text()
    assert worker.stop() == 0


@pytest.mark.parametrize(
    "lie",
    [
        '{"kind": "failed", "reason": 5}',
        '{"kind": "failed", "message": null}',
        '{"kind": "snoozed", "seconds": "soon"}',
        '{"kind": "snoozed", "seconds": -1}',
        '{"kind": "snoozed", "seconds": 31622401}',
        '{"kind": "snoozed", "seconds": NaN}',
    ],
)
def test_values_that_no_outcome_has_end_their_process(isolated: Place, lie: str) -> None:
    run = isolated.enqueue("lie", json.dumps({"outcome": lie}), max_attempts=1)
    assert isolated.ended(run, "dead").last_error == "HandlerDied: killed by signal 9 (SIGKILL)"


def test_texts_that_cannot_be_stored_are_cleaned(isolated: Place) -> None:
    lie = json.dumps({"kind": "failed", "reason": "a\0", "message": "b\0\ud800"})
    run = isolated.enqueue("lie", json.dumps({"outcome": lie, "ends": True}), max_attempts=1)
    assert isolated.ended(run, "dead").last_error == "a\\x00: b\\x00\\ud800"


# --- outcomes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "payload", "error"),
    [
        ("fail", {"message": "naïve"}, "ValueError: naïve"),
        ("fail.in_thread", {}, "ValueError: no"),
        ("give_up", {}, "NonRetryable: this cannot work"),
        ("unpicklable", {}, "Unpicklable: it holds a lock"),
        ("text", {"text": "surrogate"}, "ValueError: caf\\udce9"),
        ("text.in_thread", {"text": "unspeakable"}, "Unspeakable: error text could not be stored"),
        ("text", {"text": "system_exit"}, "SystemExit: 3"),
        ("text.in_thread", {"text": "system_exit"}, "SystemExit: 3"),
        ("text", {"text": "keyboard"}, "KeyboardInterrupt: "),
        ("text", {"text": "cancelled"}, "CancelledError: "),
        ("generator", {}, "NonRetryable: the handler 'generator' returned a generator and did nothing"),
    ],
)
def test_what_a_handler_raises_comes_back(isolated: Place, task: str, payload: dict[str, Any], error: str) -> None:
    dead = isolated.ended(isolated.enqueue(task, json.dumps(payload), max_attempts=1), "dead")
    assert dead.last_error.startswith(error)
    assert dead.reason == ("NonRetryable" if error.startswith("NonRetryable") else "RetriesExhausted")


def test_an_enormous_text_comes_back_cut(isolated: Place) -> None:
    dead = isolated.ended(isolated.enqueue("text", '{"text": "enormous"}', max_attempts=1), "dead")
    assert dead.last_error.endswith("...[truncated, 6291456 bytes]")


@pytest.mark.parametrize("task", ["snooze", "not_my_fault"])
def test_uncharged_returns_come_back_as_such(isolated: Place, task: str) -> None:
    run = isolated.enqueue(task)
    assert isolated.returned(run).charged == 0
    isolated.hurry(run)
    assert isolated.ended(run).attempts == 2


@pytest.mark.parametrize("task", ["exactly_once", "exactly_once.async"])
def test_effect_and_success_commit_together(isolated: Place, task: str) -> None:
    run = isolated.enqueue(task, '{"first": "raises after commit"}')
    assert isolated.ended(run).attempts == 1
    assert isolated.value("select count(*) from effect where run = %s", run) == 1


# --- what a run is told ---------------------------------------------------------------------------------------------


def test_a_slot_is_told_everything(isolated: Place) -> None:
    name = isolated.schedules.add(
        cron=["*/30 * * * *"], timeZone="Asia/Kolkata", task="tell", payload={"a": ["✓"]}, retry={"maxAttempts": 3}
    )
    isolated.schedules.fire(name, back=timedelta(minutes=31))
    job = eventually(lambda: isolated.schedules.jobs(name), "a run")[-1]
    isolated.ended(int(job.id))
    (line,) = isolated.noted(int(job.id), "told")
    seen, slot = line["told"], job.slot
    assert 0 < seen.pop("late_seconds") < 1800 + 60
    assert datetime.fromisoformat(seen.pop("run_at")) >= slot
    assert seen.pop("trigger") in ("Schedule", "CatchUp")
    assert (line["slot"], line["schedule"], line["attempt"]) == (slot.isoformat(), f"default/{name}", 1)
    assert seen == {
        "namespace": "default", "payload": {"a": ["✓"]}, "charged": 1, "max_attempts": 3,
        "idempotency_key": f"default/{name}@{slot:%Y-%m-%dT%H:%M:%SZ}",
        "slot_local": slot.astimezone(ZoneInfo("Asia/Kolkata")).isoformat(),
        "previous_slot": (slot - timedelta(minutes=30)).isoformat(),
        "next_slot": (slot + timedelta(minutes=30)).isoformat(),
    }  # fmt: skip


def test_a_large_payload_reaches_an_ad_hoc_run(isolated: Place) -> None:
    """Far more than a socket holds at once."""
    payload = {"text": "✓" * 300_000}
    run = isolated.enqueue("tell", json.dumps(payload, ensure_ascii=False))
    isolated.ended(run)
    told = isolated.noted(run, "told")[0]["told"]
    assert told["payload"] == payload
    assert (told["idempotency_key"], told["slot_local"], told["trigger"]) == (str(run), None, "Enqueue")


def test_handlers_speak_through_the_worker_and_do_not_learn_its_dsn(own: Place) -> None:
    worker = own.worker(isolation="process", HARMLESS="kept", PYTHONUNBUFFERED="")
    run = own.enqueue("say")
    own.ended(run)
    eventually(lambda: "said on stdout without its end" in worker.text(), "stdout")
    assert "said on stderr\n" in worker.text()
    line = own.noted(run)[0]
    assert line["environment"]["HARMLESS"] == "kept"
    assert own.dsn not in json.dumps(line)


# --- processes ------------------------------------------------------------------------------------------------------


def test_processes_are_used_again(isolated: Place) -> None:
    with isolated.connection.transaction():
        runs = [isolated.enqueue(task) for task in ("succeed", "succeed.in_thread") for _ in range(100)]
    for run in runs:
        assert isolated.ended(run).attempts == 1
    pids = {line["pid"] for line in isolated.processes.handled_runs() if line["run"] in runs}
    assert 1 <= len(pids) <= CONCURRENCY
    assert isolated.processes.started[0].pid not in pids


@pytest.mark.parametrize("task", ["for_ever", "for_ever.in_thread"])
def test_a_cancelled_run_is_told_and_its_process_used_again(isolated: Place, task: str) -> None:
    run = isolated.enqueue(task)
    pid = isolated.began(run)["pid"]
    isolated.value("select became from slotkeeper.cancel_v1(%s)", [run])
    isolated.ended(run, "cancelled")
    assert len(isolated.noted(run, "stopped")) == 1
    assert alive(pid)


def test_a_handler_that_swallows_its_cancellation_has_succeeded(isolated: Place) -> None:
    run = isolated.enqueue("swallow")
    isolated.began(run)
    isolated.value("select became from slotkeeper.cancel_v1(%s)", [run])
    isolated.ended(run, "done")


def test_attempts_past_their_deadline_really_end(own: Place) -> None:
    """Asked first, then SIGTERM, then SIGKILL; the worker goes on."""
    worker = own.processes.script(IMPATIENT, own.dsn, "9", HANDLERS.stem)
    names = {
        task: own.schedules.add(task=task, attemptDeadlineSeconds=1, retry=NEVER)
        for task in ("spin", "spin.async", "spin.deaf")
    }
    for task, name in names.items():
        own.schedules.fire(name)
        run = int(own.schedules.jobs(name)[0].id)
        pid = own.began(run)["pid"]
        assert own.returned(run).charged == 1
        assert own.errors(run) == [(1, "AttemptDeadlineExceeded", "stopped after 1 s")]
        assert not alive(pid)  # before its outcome was recorded
        assert len(own.noted(run, "cleaned up")) == (task == "spin")
    own.ended(own.enqueue("succeed"))
    assert worker.running
    assert "handler_does_not_stop" not in worker.text()


def test_a_process_that_was_signalled_for_one_run_gets_no_other(own: Place) -> None:
    """The signal may arrive when the run has ended; and a process that then does not end is killed."""
    worker = own.processes.script(IMPATIENT, own.dsn, "6", HANDLERS.stem)
    name = own.schedules.add(task="outlive_sigterm", attemptDeadlineSeconds=1, retry=NEVER)
    own.schedules.fire(name)
    run = int(own.schedules.jobs(name)[0].id)
    own.ended(run)
    pid, next_run = own.began(run)["pid"], own.enqueue("succeed")
    assert own.ended(next_run).attempts == 1
    assert own.began(next_run)["pid"] != pid
    gone({pid})
    assert worker.running


def test_a_lost_lease_is_told_and_ends_who_does_not_listen(own: Place) -> None:
    worker = own.worker(isolation="process", lease_seconds=12)
    told = own.processes.folder / "told"
    program = f"trap 'echo term > {told}' TERM; echo on > {told}; while :; do sleep 1; done"
    name = own.schedules.add(command=["sh", "-c", program])
    own.schedules.fire(name)
    listening, spinning = own.enqueue("for_ever.in_thread"), own.enqueue("spin.deaf")
    pids = {own.began(run)["pid"] for run in (listening, spinning)}
    eventually(told.exists, "the command runs")
    own.value("select became from slotkeeper.cancel_v1(%s)", [int(own.schedules.jobs(name)[0].id)])
    eventually(lambda: told.read_text() == "term\n", "a command that is being stopped already")
    with own.connection.transaction():  # else a beat could come in between
        own.connection.execute("update slotkeeper.worker set lease_until = clock_timestamp() - interval '1 second'")
        scenario.reap(own.connection)
    assert eventually(lambda: own.noted(listening, "stopped"), "told")[0]["lost"] is True
    eventually(lambda: not alive(own.began(spinning)["pid"]), "ended")
    assert len(pids) == 2
    own.ended(own.enqueue("succeed"))
    assert worker.running


# --- the end of the worker ------------------------------------------------------------------------------------------


def test_a_drain_waits_for_processes_and_ends_those_that_do_not_stop(own: Place) -> None:
    worker = own.worker(isolation="process", drain_seconds=1.5)
    short, long = own.enqueue("sleep.in_thread", '{"seconds": 1}'), own.enqueue("spin.deaf")
    for run in (short, long):
        own.began(run)
    started = children(worker.pid)
    assert worker.stop() == 0, worker.text()
    assert own.job(short).status == "done"
    back = own.job(long)
    assert (back.status, back.attempts, back.charged) == ("ready", 1, 0)
    gone(started)


def test_a_worker_leaves_nothing_behind_at_its_end(own: Place) -> None:
    """No resource unclosed, and processes that end in good order."""
    worker = own.processes.worker(
        own.dsn, own.handlers, python=["-X", "dev", "-W", "error"], isolation="process", PYTHONDEVMODE="1",
        PYTHONWARNINGS="error", PYTHONUNBUFFERED="",
    )  # fmt: skip
    name = own.schedules.add(command=["echo", "hello"])
    own.schedules.fire(name)
    for task in ("succeed", "succeed.in_thread", "print"):
        own.ended(own.enqueue(task))
    own.returned(own.enqueue("fail"))
    eventually(lambda: [job.status for job in own.schedules.jobs(name)] == ["done"], "the command")
    started = children(worker.pid)
    assert worker.stop() == 0
    assert not any(alive(pid) for pid in started)
    assert "a line without its end" in worker.text()
    for word in ("Warning", "Traceback", "never awaited", "was destroyed", "unclosed"):
        assert word not in worker.text(), worker.text()
    assert own.value("select count(*) from slotkeeper.worker") == 0


@pytest.fixture
def stubborn(own: Place) -> Callable[[], int]:
    """Starts a command whose child ignores signals; returns that child's process id."""

    def start() -> int:
        told = own.processes.folder / f"stubborn-{len(list(own.processes.folder.iterdir()))}"
        program = (
            "import subprocess, sys; sys.path.insert(0, sys.argv[1]); from isolated_handlers import STUBBORN;"
            " p = subprocess.Popen([sys.executable, '-c', STUBBORN], stdout=subprocess.PIPE); p.stdout.readline();"
            " open(sys.argv[2], 'w').write(str(p.pid)); p.wait()"
        )
        name = own.schedules.add(command=[sys.executable, "-c", program, str(HANDLERS.parent), str(told)])
        own.schedules.fire(name)
        return int(eventually(lambda: told.exists() and told.read_text(), "the command's child"))

    return start


def test_kill_9_of_a_worker_leaves_no_process(own: Place, stubborn: Callable[[], int]) -> None:
    """Neither its own, nor what handlers and commands have started."""
    worker = own.worker(isolation="process")
    run, spinning = own.enqueue("parent"), own.enqueue("spin.deaf")
    started = {own.began(run)["child"], stubborn(), own.began(spinning)["pid"], *children(worker.pid)}
    assert len(started) >= 5
    assert all(alive(pid) for pid in started)
    worker.kill()
    gone(started)


def test_a_guard_that_was_killed_is_replaced(own: Place, stubborn: Callable[[], int]) -> None:
    worker = own.worker()
    first = stubborn()
    os.kill(guard_of(worker), signal.SIGKILL)
    started = {first, stubborn()}
    guard = guard_of(worker)
    worker.kill()
    gone({*started, guard})


def guard_of(worker: OwnProcess) -> int:
    living = [pid for pid in children(worker.pid) if alive(pid)]
    (guard,) = (pid for pid in living if b"guard_process" in Path(f"/proc/{pid}/cmdline").read_bytes())
    return guard
