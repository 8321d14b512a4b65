"""The API ``external.metrics.k8s.io/v1beta1``, so that a plain HPA scales a pool with nothing else installed.

Only what an autoscaler and the aggregation layer ask for: discovery, and one metric of one pool. The layer has
authorised the caller before it hands a request on, so who comes with its client certificate is trusted and everybody
else refused. Sockets and certificates are in ``external_metrics_server``.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from slotkeeper.metrics.scaling import PoolNumbers, StaleNumbers, UnknownPool

GROUP, VERSION = "external.metrics.k8s.io", "v1beta1"
METRIC = "slotkeeper_workers_wanted"
_ROOT = f"/apis/{GROUP}"
_PROBES = ("/livez", "/readyz")
_REASONS = {
    400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 405: "MethodNotAllowed",
    500: "InternalError", 503: "ServiceUnavailable",
}  # fmt: skip
#: ``pool=NAME``, ``pool==NAME`` or ``pool in (NAME)``: what matchLabels and matchExpressions of an HPA become.
_SELECTOR = re.compile(r"\s*pool\s*(?:==?\s*(?P<equal>[^\s,=()!]+)|\s+in\s*\(\s*(?P<among>[^\s,()]+)\s*\))\s*")

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def external_metrics_app(
    numbers: PoolNumbers, *, allowed_names: Collection[str] = (), ready: Callable[[], bool] = lambda: True
) -> web.Application:
    """The application. ``allowed_names``: common names of the client certificates that are let in; empty: any that the
    TLS layer has verified. ``ready`` answers /readyz."""

    async def metric(request: web.Request) -> web.Response:
        if request.match_info["metric"] != METRIC:
            raise web.HTTPNotFound(text=f"there is no metric {request.match_info['metric']!r} here; ask for {METRIC}")
        number = await numbers.find(request.match_info["namespace"], _selected_pool(request))
        return web.json_response(_value_list(number.pool, number.wanted))

    async def live(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readiness(_: web.Request) -> web.Response:
        # Not the database's: without a ready endpoint the API is unavailable, and that stops the deletion of every
        # namespace of the cluster. While the database is away, only the metric answers 503.
        return web.Response(text="ok\n") if ready() else web.Response(status=503, text="stopping\n")

    app = web.Application(middlewares=[_status_errors, _authenticated(allowed_names)])
    app.router.add_get("/livez", live)
    app.router.add_get("/readyz", readiness)
    app.router.add_get(_ROOT, _document(_GROUP_DOCUMENT))
    app.router.add_get(f"{_ROOT}/{VERSION}", _document(_RESOURCES_DOCUMENT))
    app.router.add_get(f"{_ROOT}/{VERSION}/namespaces/{{namespace}}/{{metric}}", metric)
    return app


def _selected_pool(request: web.Request) -> str:
    """The one pool that the label selector names: an HPA adds up whatever a selector matches."""
    selector = request.query.get("labelSelector", "")
    found = _SELECTOR.fullmatch(selector)
    if found is None:
        raise web.HTTPBadRequest(
            text=f"labelSelector: {selector!r} does not name one pool; write pool=NAME (in an HPA: matchLabels)"
        )
    return found["equal"] or found["among"]


def _value_list(pool: str, wanted: int) -> dict[str, Any]:
    return {
        "kind": "ExternalMetricValueList",
        "apiVersion": f"{GROUP}/{VERSION}",
        "metadata": {},
        "items": [
            {
                "metricName": METRIC,
                "metricLabels": {"pool": pool},
                "timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "value": str(wanted),
            }
        ],
    }


def _document(content: dict[str, Any]) -> _Handler:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response(content)

    return answer


_VERSION_DOCUMENT = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
_GROUP_DOCUMENT: dict[str, Any] = {
    "kind": "APIGroup",
    "apiVersion": "v1",
    "name": GROUP,
    "versions": [_VERSION_DOCUMENT],
    "preferredVersion": _VERSION_DOCUMENT,
}
_RESOURCES_DOCUMENT: dict[str, Any] = {
    "kind": "APIResourceList",
    "apiVersion": "v1",
    "groupVersion": f"{GROUP}/{VERSION}",
    "resources": [
        {"name": METRIC, "singularName": "", "namespaced": True, "kind": "ExternalMetricValueList", "verbs": ["get"]}
    ],
}


def _authenticated(allowed_names: Collection[str]) -> Any:
    @web.middleware
    async def check(request: web.Request, handler: _Handler) -> web.StreamResponse:
        if request.path not in _PROBES:
            certificate = request.transport and request.transport.get_extra_info("peercert")
            if not certificate:
                raise web.HTTPUnauthorized(
                    text="only the API server's aggregation layer may ask: no client certificate"
                )
            names = [value for part in certificate["subject"] for key, value in part if key == "commonName"]
            if allowed_names and not set(names) & set(allowed_names):
                raise web.HTTPForbidden(
                    text=f"the client certificate's name {', '.join(names) or '(none)'} is not allowed here"
                )
        return await handler(request)

    return check


@web.middleware
async def _status_errors(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Every error as a Status, which is what clients of a Kubernetes API read."""
    try:
        return await handler(request)
    except UnknownPool as error:
        return _status(404, str(error))
    except StaleNumbers as error:
        return _status(503, str(error))
    except web.HTTPException as error:
        return _status(error.status, error.text or error.reason)


def _status(code: int, message: str) -> web.Response:
    return web.json_response(
        {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
            "reason": _REASONS.get(code, ""), "code": code,
        },
        status=code,
    )  # fmt: skip
