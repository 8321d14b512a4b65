"""What the pages and the JSON API show of a real database."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scenario import EPOCH, add_schedule, add_worker, cancel, edit, enqueue, fold, one
from slotkeeper.web.guard import HEADERS
from web_browser import Browser

Connection = psycopg.Connection[Any]
HOUR = timedelta(hours=1)
PATHS = ["/", "/runs", "/queues", "/dead"]
SECRETS = ("hunter2-payload", "hunter2-error", "hunter2-header", "hunter2-argument")


def now(connection: Connection) -> datetime:
    moment: datetime = one(connection, "select date_trunc('hour', clock_timestamp())")
    return moment.astimezone(UTC)


def rfc3339(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Text(HTMLParser):
    """The words of a page, and the names of its elements."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(page)

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += attrs


def test_a_run_in_every_state_is_shown_with_its_reason(connection: Connection, browser: Browser) -> None:
    slot = now(connection) - 6 * HOUR
    worker = add_worker(connection, namespaces=["shop"])
    report = add_schedule(connection, "report", namespace="shop", action="sales.report", max_attempts=1)
    report.materialise([slot])
    worker.finish_batch(worker.claim())
    report.materialise([slot + HOUR])
    (run,) = worker.claim()
    worker.finish(run, "failed", reason="ValueError", message="hunter2-error")
    report.materialise([slot + 2 * HOUR])
    report.materialise([slot + 3 * HOUR])  # RunOnce: the one before is superseded
    (running,) = worker.claim()
    report.materialise([slot + 4 * HOUR])  # Overlap
    waiting = enqueue(connection, "mail.send", namespace="shop", key="mail-7", payload='{"a": "hunter2-payload"}')
    gone = enqueue(connection, "mail.send", namespace="shop")
    cancel(connection, gone.id)

    page = browser.api("runs")
    assert [(run["id"], run["status"], run["type"]) for run in page["live"]] == [
        (str(running.id), "running", "sales.report"), (str(waiting.id), "ready", "mail.send"),
    ]  # fmt: skip
    assert page["live"][0]["locked_by"] == one(connection, "select name from slotkeeper.worker")
    assert page["live"][1]["idempotency_key"] == "mail-7"
    assert {(run["status"], run["reason"], run["slot"]) for run in page["ended"]} == {
        ("done", None, rfc3339(slot)), ("dead", "RetriesExhausted", rfc3339(slot + HOUR)),
        ("superseded", "Superseded", rfc3339(slot + 2 * HOUR)), ("skipped", "Overlap", rfc3339(slot + 4 * HOUR)),
        ("cancelled", "Cancelled", None),
    }  # fmt: skip
    ends = [run["finished_at"] for run in page["ended"]]
    assert ends == sorted(ends, reverse=True)
    for status in ("done", "dead", "superseded", "skipped", "cancelled", "running", "ready"):
        found = browser.api(f"runs?status={status}&namespace=shop")
        assert [run["status"] for run in found.get("live", []) + found.get("ended", [])] == [status]
        assert browser.api(f"runs?status={status}&namespace=other").get("ended", []) == []
    assert [run["slot"] for run in browser.api("dead")["ended"]] == [rfc3339(slot + HOUR)]

    one_schedule = browser.api("schedules/default/shop/report")
    assert [(run["slot"], run["status"]) for run in one_schedule["runs"]] == [
        (rfc3339(slot + 4 * HOUR), "skipped"), (rfc3339(slot + 3 * HOUR), "running"),
        (rfc3339(slot + 2 * HOUR), "superseded"), (rfc3339(slot + HOUR), "dead"), (rfc3339(slot), "done"),
    ]  # fmt: skip
    # These rows are started hours after their slots: late, but for the manual and caught-up ones.
    assert [run["late_seconds"] is not None for run in one_schedule["runs"]] == [False, True, False, True, True]
    heat = {cell["hour"]: cell for cell in one_schedule["heat"]}
    assert heat[rfc3339(slot)]["worst"] == "late"
    assert [heat[rfc3339(slot + number * HOUR)]["worst"] for number in range(1, 5)] == [
        "dead", "superseded", "late", "skipped",
    ]  # fmt: skip
    for path in ("/runs", "/schedules/default/shop/report", "/dead"):
        page_text = browser.get(path).text
        assert "RetriesExhausted" in page_text
        assert "report" in page_text


def test_no_payload_no_error_and_no_argument_is_shown_anywhere(connection: Connection, browser: Browser) -> None:
    spec = (
        '{"cron": ["0 * * * *"], "timeZone": "Etc/UTC", "command": ["curl", "hunter2-argument"],'
        ' "http": {"headers": [{"name": "x", "value": "hunter2-header"}]}}'
    )
    schedule = add_schedule(
        connection, "quiet", payload='{"password": "hunter2-payload"}', spec=spec, action="command", max_attempts=1,
    )  # fmt: skip
    schedule.materialise([now(connection)])
    worker = add_worker(connection)
    worker.finish(worker.claim()[0], "failed", reason="ValueError", message="hunter2-error")
    enqueue(connection, payload='{"password": "hunter2-payload"}')
    assert "hunter2-error" in one(connection, "select string_agg(last_error, '') from slotkeeper.job")
    for path in [*PATHS, "/schedules/default/default/quiet"]:
        for prefix in ("", "/api/v1"):
            text = browser.get(prefix + ("/schedules" if prefix and path == "/" else path)).text
            assert not [secret for secret in SECRETS if secret in text], prefix + path
    assert browser.api("schedules/default/default/quiet")["schedule"]["expression"] == "0 * * * *"


@pytest.mark.parametrize("place", ["9999-12-31T00:00:00Z", "0001-01-01T00:00:00Z"])
def test_a_place_beyond_history_is_its_end(connection: Connection, browser: Browser, place: str) -> None:
    schedule = add_schedule(connection, "report", max_attempts=1)
    schedule.materialise([now(connection) - HOUR])
    worker = add_worker(connection)
    worker.finish(worker.claim()[0], "failed")
    for path, name in (("runs", "ended"), ("dead", "ended"), ("schedules/default/default/report", "runs")):
        found = browser.api(f"{path}?before={place}")
        assert ([run["status"] for run in found[name]], found["next"]) == (["dead"] * place.startswith("9"), None)


def test_a_range_that_began_before_the_heat_map_is_in_it(connection: Connection, browser: Browser) -> None:
    schedule = add_schedule(connection, "away")
    midnight = now(connection).replace(hour=0)
    first, last = midnight - timedelta(days=13), midnight - timedelta(days=12, hours=22, minutes=30)
    for began, ended, reason in (
        (first - timedelta(days=20), last, "CatchUpLimit"),
        (first - 9 * HOUR, first - 8 * HOUR, "Late"),
        (first - HOUR, first - HOUR, "Overlap"),
    ):
        connection.execute(
            "insert into slotkeeper.slot_skip (schedule, first_slot, last_slot, slots, outcome, reason, version)"
            " values (%s, %s, %s, 7, 3, %s, 1)", (schedule.id, began, ended, reason),
        )  # fmt: skip
    heat = browser.api("schedules/default/default/away")["heat"]
    assert [(cell["hour"], cell["text"][18:]) for cell in heat] == [
        (rfc3339(first), "7 skipped (CatchUpLimit)"), (rfc3339(first + HOUR), "7 skipped (CatchUpLimit)"),
    ]  # fmt: skip


def test_schedules_with_their_state_and_health(connection: Connection, browser: Browser) -> None:
    soon = one(connection, "select date_trunc('second', clock_timestamp()) + interval '90 minutes'")
    spec = '{"cron": ["30 2 * * *"], "timeZone": "Europe/Berlin", "task": "t"}'
    for name in ("fine", "paused", "kept", "elsewhere", "never", "dying", "overdue"):
        add_schedule(connection, name, next_due=None if name == "never" else soon, spec=spec, max_attempts=1)
    for name, column in (("paused", "suspended"), ("kept", "held"), ("elsewhere", "unwatched")):
        connection.execute(f"update slotkeeper.schedule set {column} = true where name = %s", (name,))
    connection.execute(
        "update slotkeeper.schedule_state t set success_due = '2000-01-01', due_version = 1, due_since = 'infinity'"
        " from slotkeeper.schedule s where s.id = t.schedule and s.name = 'overdue'"
    )
    dying = one(connection, "select owner from slotkeeper.schedule where name = 'dying'")
    connection.execute(
        "insert into slotkeeper.run (owner, slot, run_at, version, lane, max_attempts, trigger, exclusive)"
        " values (%s, %s, %s, 1, (select min(id) from slotkeeper.lane), 1, 0, true)", (dying, EPOCH, EPOCH),
    )  # fmt: skip
    worker = add_worker(connection)
    worker.finish(worker.claim()[0], "failed")

    def listed(query: str = "") -> dict[str, tuple[str, str]]:
        return {item["name"]: (item["state"], item["health"]) for item in browser.api(f"schedules{query}")["schedules"]}

    expected = {
        "fine": ("Active", "NotYetDue"), "paused": ("Suspended", "NotYetDue"), "kept": ("Held", "NotYetDue"),
        "elsewhere": ("Unwatched", "NotYetDue"), "never": ("NoNextSlot", "NotYetDue"), "dying": ("Active", "DeadRuns"),
        "overdue": ("Active", "NeverSucceeded"),
    }  # fmt: skip
    assert listed() == expected
    fold(connection)
    assert listed() == expected
    assert listed("?state=Held").keys() == {"kept"}
    assert listed("?health=DeadRuns").keys() == {"dying"}
    assert listed("?name=VER").keys() == {"never", "overdue"}
    assert listed("?namespace=other") == {}
    counts = browser.api("schedules")["counts"]
    assert sum(item["schedules"] for item in counts) == len(expected)
    assert {"state": "Active", "health": "DeadRuns", "schedules": 1} in counts
    fine = browser.api("schedules/default/default/fine")
    assert fine["schedule"]["next_slot"] == rfc3339(soon)
    assert fine["upcoming"][0]["slot"] == rfc3339(soon)
    assert len(fine["upcoming"]) == 10
    assert browser.api("schedules/default/default/paused")["upcoming"] == []
    page = browser.get("/").text
    assert "30 2 * * *" in page
    assert re.search(r"in 1 h (29|30) min", page)
    local = soon.astimezone(__import__("zoneinfo").ZoneInfo("Europe/Berlin"))
    assert f"{local:%H:%M:%S} Europe/Berlin" in page


def test_nobody_serves_the_queue_of_a_schedule(connection: Connection, browser: Browser) -> None:
    add_schedule(connection, "alone", queue="lonely", next_due=now(connection) + 2 * HOUR)
    connection.execute("update slotkeeper.lane set unserved_since = clock_timestamp() - interval '1 minute'")
    assert browser.api("schedules?health=NoWorker")["schedules"] == []
    connection.execute("update slotkeeper.lane set unserved_since = clock_timestamp() - interval '3 minutes'")
    assert [item["name"] for item in browser.api("schedules?health=NoWorker")["schedules"]] == ["alone"]


def test_paging_shows_every_schedule_once(connection: Connection, browser: Browser) -> None:
    for cluster in ("a", "b"):
        for number in range(110):
            add_schedule(connection, f"s{number:03}", cluster=cluster, namespace=f"n{number % 3}")
    found, following = [], ""
    while following is not None:
        page = browser.api(f"schedules{following}")
        assert len(page["schedules"]) <= 100
        found += [(item["cluster"], item["namespace"], item["name"]) for item in page["schedules"]]
        following = page["next"]
    assert len(found) == 220
    assert found == sorted(set(found))
    link = re.search(r'rel="next" href="([^"]+)"', browser.get("/").text)
    assert link is not None
    assert link[1].replace("&amp;", "&") == browser.api("schedules")["next"]


def test_paging_of_runs_shows_each_once(connection: Connection, browser: Browser) -> None:
    ids = [enqueue(connection, "t").id for _ in range(130)]
    worker = add_worker(connection)
    claimed = worker.claim(60)
    worker.finish_batch(claimed)  # one statement: many of them end at almost the same instant
    shown: list[str] = []
    following = "?namespace=default&status=done"
    while following is not None:
        page = browser.api(f"runs{following}")
        shown += [run["id"] for run in page["ended"]]
        following = page["next"]
    assert sorted(shown, key=int) == sorted((str(run.id) for run in claimed), key=int)
    live: list[str] = []
    following = "?status=ready"
    while following is not None:
        page = browser.api(f"runs{following}")
        live += [run["id"] for run in page["live"]]
        following = page["live_next"]
    assert live == [str(id_) for id_ in ids if id_ not in {run.id for run in claimed}]


def test_queues_and_workers(connection: Connection, browser: Browser) -> None:
    schedule = add_schedule(connection, overlap="Queue", catch_up="RunAll", namespace="shop", queue="mail")
    moment = now(connection)
    schedule.materialise([moment - 2 * HOUR, moment - HOUR])
    enqueue(connection, namespace="shop", queue="mail")
    enqueue(connection, namespace="shop", queue="mail", run_at=moment + 9 * HOUR)
    worker = add_worker(connection, namespaces=["shop"], queues=["*"])
    worker.claim(1)
    page = browser.api("queues")
    (lane,) = page["lanes"]
    assert {name: lane[name] for name in ("ready", "later", "behind", "running", "workers", "more")} == {
        "ready": 1, "later": 1, "behind": 1, "running": 1, "workers": 1, "more": False,
    }  # fmt: skip
    assert lane["oldest"] is not None
    (process,) = page["workers"]
    assert (process["running"], process["queues"], process["alive"]) == (1, ["*"], True)
    worker.expire()
    page = browser.api("queues")
    assert (page["lanes"][0]["workers"], page["workers"][0]["alive"]) == (0, False)
    assert "lost" in browser.get("/queues").text


def test_a_schedule_that_was_edited_shows_what_it_says_now(connection: Connection, browser: Browser) -> None:
    schedule = add_schedule(connection, "s", spec='{"every": {"periodSeconds": 60}, "task": "t"}')
    schedule.materialise([now(connection)])
    edit(connection, schedule, overlap="Allow")
    page = browser.api("schedules/default/default/s")
    assert page["schedule"]["expression"] == "every 60s"
    assert len(page["runs"]) == 1
    connection.execute("update slotkeeper.schedule set retired_at = now()")
    assert browser.get("/schedules/default/default/s").status == 404


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("/nope", 404, "There is no such page."),
        ("/schedules/a/b/c", 404, "There is no schedule b/c of cluster a."),
        ("/schedules/a/b/%00", 404, "There is no such schedule."),
        ("/?state=Sad", 400, "state: 'Sad' is not known; write one of Active, Suspended, Held, Unwatched, NoNextSlot"),
        ("/?after=x", 400, "after: 'x' is no place in the list; write CLUSTER/NAMESPACE/NAME"),
        ("/?name=%00", 400, "name: "),
        ("/runs?before=yesterday", 400, "before: 'yesterday' is no place in the list; write an instant such as "),
        ("/runs?before=0001-01-01T00:00:00%2B14:00", 400, "before: '0001-01-01T00:00:00+14:00' is no place"),
        ("/runs?before=9999-12-31T23:00:00-14:00", 400, "before: '9999-12-31T23:00:00-14:00' is no place"),
        ("/runs?after=-1", 400, "after: '-1' is no id of a run; write a whole number"),
        ("/runs?after=99999999999999999999", 400, "is no id of a run"),
        ("/queues?x=1", 400, "query: 'x' is no parameter here; those are: none"),
        ("/dead?status=done", 400, "status: 'done' is not known; write one of dead"),
    ],
)
def test_what_cannot_be_shown_is_a_sentence(browser: Browser, path: str, status: int, sentence: str) -> None:
    answer = browser.get(path)
    assert answer.status == status
    assert sentence in "".join(Text(answer.text).words)
    told = browser.get(
        ("/api/v1/schedules" if path.startswith("/?") else "/api/v1")
        + path.removeprefix("/" if path.startswith("/?") else "")
    )
    assert told.status == status
    assert sentence in told.json["error"]


def test_only_reading_is_answered(browser: Browser) -> None:
    for path in (*PATHS, "/api/v1/runs"):
        assert browser.get(path, method="POST").status == 405
        assert browser.get(path, method="DELETE").status == 405
        assert browser.get(path, method="HEAD").status == 200


def test_another_host_name_reads_nothing(connection: Connection, browser: Browser) -> None:
    add_schedule(connection, "inner")
    for path in (*PATHS, "/api/v1/schedules", "/static/dashboard.css"):
        answer = browser.get(path, host="evil.example")
        assert answer.status == 421
        assert answer.text == "The dashboard answers only to localhost and loopback addresses.\n"
        assert browser.get(path, host="localhost:9000").status == 200
    assert browser.get("/", host="").status == 421


def test_every_answer_binds_the_browser(browser: Browser) -> None:
    for path in (*PATHS, "/api/v1/runs", "/static/dashboard.js", "/static/dashboard.css", "/nope", "/runs?after=x"):
        answer = browser.get(path)
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS, path
        assert "Set-Cookie" not in answer.headers
    assert browser.get("/static/dashboard.js").headers["Content-Type"].startswith("text/javascript")
    assert browser.get("/static/../server.py").status == 404
    policy = HEADERS["Content-Security-Policy"]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "http" not in policy


def test_pages_keep_to_their_own_policy(connection: Connection, browser: Browser) -> None:
    """No style or script within a page, nothing from elsewhere, and tables with headers."""
    schedule = add_schedule(connection, "s", spec='{"cron": ["* * * * *"], "timeZone": "Europe/Berlin", "task": "t"}')
    schedule.materialise([now(connection)])
    for path in [*PATHS, "/schedules/default/default/s"]:
        page = Text(browser.get(path).text)
        assert not [name for name, _ in page.attributes if name == "style" or name.startswith("on")], path
        assert page.elements.count("script") == 1
        assert "style" not in page.elements
        for name, value in page.attributes:
            if name in ("href", "src", "action"):
                assert value is not None
                assert value.startswith(("/", "#", "?")), value
                assert not value.startswith("//")
        assert page.elements.count("h1") == 1
        assert page.elements.count("main") == 1
        assert page.elements.count("input") + page.elements.count("select") <= page.elements.count("label")
        assert page.elements.count("table") <= page.elements.count("thead")


MARKUP = st.text(st.sampled_from("<>&\"'/= `{}%aé"), min_size=1, max_size=20).map(str.strip).filter(bool)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(MARKUP, MARKUP)
def test_names_with_markup_are_shown_as_they_are(
    connection: Connection, browser: Browser, first: str, second: str
) -> None:
    """Task names, keys, queues and names of workers are anybody's text."""
    connection.execute("truncate slotkeeper.lane, slotkeeper.run, slotkeeper.idempotency, slotkeeper.worker cascade")
    plain = Text(browser.get("/runs").text)
    enqueue(connection, f"<script>{first}", namespace="<b>n", queue=f"<i>{second}", key=f'"onclick="x" {second}')
    worker = add_worker(connection, namespaces=["*"], queues=["*"])
    connection.execute("update slotkeeper.worker set name = %s", (f"<img src=x>{first}",))
    worker.claim()
    page = Text(browser.get("/runs").text)
    words = [word.strip() for word in page.words]
    assert f"<script>{first}" in words
    assert f"<i>{second}" in words
    assert f"<img src=x>{first}" in words
    assert {"script", "b", "i", "img"} & set(page.elements) == {"script"}
    assert page.elements.count("script") == plain.elements.count("script") == 1
    assert not [name for name, _ in page.attributes if name == "onclick"]
    assert ("title", f'"onclick="x" {second}') in page.attributes
    queues = Text(browser.get("/queues").text)
    assert {"i", "img"} & set(queues.elements) == set()
    nasty = Text(browser.get("/?name=%22%3E%3Cscript%3Ealert(1)%3C/script%3E").text)
    assert nasty.elements.count("script") == 1
    assert ("value", '"><script>alert(1)</script>') in nasty.attributes
