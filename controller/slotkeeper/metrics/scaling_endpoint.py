"""``GET /scaling/v1/namespaces/{namespace}/pools/{pool}``: a pool's number as JSON, for KEDA's ``metrics-api``."""

from __future__ import annotations

import hmac
from pathlib import Path

from aiohttp import web

from slotkeeper.metrics.scaling import PoolNumbers, StaleNumbers, UnknownPool, as_json

PATH = "/scaling/v1/namespaces/{namespace}/pools/{pool}"


def add_scaling_routes(app: web.Application, numbers: PoolNumbers, token_file: Path | None = None) -> None:
    """Adds the endpoint to ``app``. With ``token_file``, callers must present what it holds as a bearer token.

    The file is read at each request, so that a Secret may be rotated.
    """

    async def pool(request: web.Request) -> web.Response:
        if token_file is not None and not _presents(request, token_file):
            return _refused(401, "this needs the header 'Authorization: Bearer TOKEN'")
        try:
            number = await numbers.find(request.match_info["namespace"], request.match_info["pool"])
        except UnknownPool as error:
            return _refused(404, str(error))
        except StaleNumbers as error:
            return _refused(503, str(error))
        return web.json_response(as_json(number), headers={"Cache-Control": "no-store"})

    app.router.add_get(PATH, pool)


def _presents(request: web.Request, token_file: Path) -> bool:
    """Whether the caller knows the token; nobody does while the file is empty or cannot be read."""
    try:
        token = token_file.read_bytes().strip()
    except OSError:
        return False
    scheme, _, presented = request.headers.get("Authorization", "").partition(" ")
    known = hmac.compare_digest(presented.strip().encode("utf-8", "surrogateescape"), token)
    return bool(token) and scheme.lower() == "bearer" and known


def _refused(status: int, reason: str) -> web.Response:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    return web.json_response({"error": reason}, status=status, headers=headers)
