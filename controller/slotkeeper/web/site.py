"""Which address shows what: the pages, the JSON API beside them, and the two files of style and script."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from urllib.parse import quote, urlencode

import structlog
from aiohttp import web
from aiohttp.typedefs import Middleware
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from slotkeeper import __version__
from slotkeeper.errors import DatabaseBusy, DatabaseError, InvalidField, SchemaMissing
from slotkeeper.store.web import DashboardSchedule
from slotkeeper.web import wording
from slotkeeper.web.guard import Handler, guard
from slotkeeper.web.heat import SIGNS
from slotkeeper.web.history import Cursor
from slotkeeper.web.json_api import queues_json, runs_json, schedule_json, schedules_json
from slotkeeper.web.pages import dead_page, queues_page, runs_page, schedule_page, schedules_page
from slotkeeper.web.parameters import (
    ENDED,
    HEALTHS,
    LIVE,
    STATES,
    cursor_text,
    no_parameters,
    run_filter,
    schedule_filter,
)
from slotkeeper.web.reader import STATEMENT_MILLISECONDS, Reader

_log = structlog.stdlib.get_logger()
_FOLDER = Path(__file__).parent
_API = "/api/v1"
_STATIC = {"dashboard.css": "text/css", "dashboard.js": "text/javascript"}


def application(reader: Reader) -> web.Application:
    """The whole site over one reader."""
    site = _Site(reader)
    app = web.Application(middlewares=[guard, site.errors])
    for path, handler in (
        ("/", site.schedules),
        ("/schedules/{cluster}/{namespace}/{name}", site.schedule),
        ("/runs", site.runs),
        ("/queues", site.queues),
        ("/dead", site.dead),
        (f"{_API}/schedules", site.schedules),
        (f"{_API}/schedules/{{cluster}}/{{namespace}}/{{name}}", site.schedule),
        (f"{_API}/runs", site.runs),
        (f"{_API}/queues", site.queues),
        (f"{_API}/dead", site.dead),
    ):
        app.router.add_get(path, handler)
    for name, kind in _STATIC.items():
        app.router.add_get(f"/static/{name}", _file(name, kind))
    return app


class _Site:
    """The handlers. Each reads once, and answers with a page or, below /api/v1, with the same values as JSON."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._templates = _environment()

    async def schedules(self, request: web.Request) -> web.Response:
        wanted = schedule_filter(request.query)
        page = await self._reader.read(partial(schedules_page, wanted=wanted))
        if _is_api(request):
            return web.json_response(schedules_json(page, wanted))
        following = None if page.next is None else {**wanted.query(), "after": "/".join(page.next)}
        return self._page("schedules.html", page=page, wanted=wanted, following=following)

    async def schedule(self, request: web.Request) -> web.Response:
        wanted = run_filter(request.query)
        key = request.match_info
        cluster, namespace, name = (_name(key[part]) for part in ("cluster", "namespace", "name"))
        page = await self._reader.read(lambda reading: schedule_page(reading, cluster, namespace, name, wanted))
        if page is None:
            raise web.HTTPNotFound(text=f"There is no schedule {namespace}/{name} of cluster {cluster}.")
        if _is_api(request):
            return web.json_response(schedule_json(page, wanted))
        return self._page(
            "schedule.html", page=page, wanted=wanted, following=_following(wanted.query(), page.runs.next)
        )

    async def runs(self, request: web.Request) -> web.Response:
        wanted = run_filter(request.query)
        page = await self._reader.read(partial(runs_page, wanted=wanted))
        if _is_api(request):
            return web.json_response(runs_json(page, wanted))
        ended = None if page.ended is None else page.ended.next
        live = None if page.live_next is None else {**wanted.query(), "after": page.live_next}
        return self._page(
            "runs.html", page=page, wanted=wanted, following=_following(wanted.query(), ended), live_following=live
        )

    async def dead(self, request: web.Request) -> web.Response:
        wanted = run_filter(request.query, ("dead",))
        page = await self._reader.read(partial(dead_page, wanted=wanted))
        if _is_api(request):
            return web.json_response(runs_json(page, wanted))
        place = None if page.ended is None else page.ended.next
        return self._page("dead.html", page=page, wanted=wanted, following=_following(wanted.query(), place))

    async def queues(self, request: web.Request) -> web.Response:
        no_parameters(request.query)
        page = await self._reader.read(queues_page)
        if _is_api(request):
            return web.json_response(queues_json(page))
        return self._page("queues.html", page=page)

    @property
    def errors(self) -> Middleware:
        """The middleware that turns errors into pages without a traceback."""

        @web.middleware
        async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
            try:
                return await handler(request)
            except web.HTTPException as error:
                return self._failed(request, error.status, _sentence(error))
            except InvalidField as error:
                return self._failed(request, 400, str(error))
            except DatabaseBusy:
                seconds = STATEMENT_MILLISECONDS // 1000
                return self._failed(request, 503, f"The database gave no answer within {seconds} seconds.")
            except SchemaMissing:
                return self._failed(request, 503, "The schema is older than this version: run 'slotkeeper migrate'.")
            except DatabaseError:
                return self._failed(request, 503, "The database cannot be read at the moment. The log says why.")
            except Exception:  # noqa: BLE001 - a page must not show a traceback; the log does
                _log.exception("dashboard_request_crashed", path=request.path)
                return self._failed(request, 500, "The dashboard has met a fault. The log says which.")

        return errors

    def _page(self, template: str, *, status: int = 200, **values: object) -> web.Response:
        text = self._templates.get_template(template).render(**values)
        return web.Response(text=text, content_type="text/html", charset="utf-8", status=status)

    def _failed(self, request: web.Request, status: int, sentence: str) -> web.Response:
        if _is_api(request):
            return web.json_response({"error": sentence}, status=status)
        return self._page("failed.html", status=status, code=status, sentence=sentence)


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters.update(
        instant=wording.instant, rfc3339=wording.rfc3339, local=wording.local, duration=wording.duration,
        relative=wording.relative, query=_query, address=schedule_address,
    )  # fmt: skip
    environment.globals.update(
        version=__version__, states=STATES, healths=HEALTHS, live_statuses=LIVE, ended_statuses=ENDED, signs=SIGNS
    )
    return environment


def schedule_address(schedule: DashboardSchedule) -> str:
    """The path of a schedule's page."""
    return "/schedules/" + "/".join(quote(part, safe="") for part in schedule.key)


def _query(parameters: Mapping[str, object]) -> str:
    return "?" + urlencode(parameters)


def _following(query: Mapping[str, str], place: Cursor | None) -> dict[str, str] | None:
    return {**query, "before": cursor_text(place)} if place is not None else None


def _name(text: str) -> str:
    if len(text) > 253 or not text.isprintable():
        raise web.HTTPNotFound(text="There is no such schedule.")
    return text


def _is_api(request: web.Request) -> bool:
    return request.path.startswith(_API)


def _sentence(error: web.HTTPException) -> str:
    if error.status == 404 and (not error.text or error.text.startswith("404")):
        return "There is no such page."
    if error.status == 405:
        return "The dashboard only reads: GET and HEAD are all it answers."
    return error.text or error.reason


def _file(name: str, kind: str) -> Handler:
    content = (_FOLDER / "static" / name).read_bytes()

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=content, content_type=kind, charset="utf-8")

    return answer
