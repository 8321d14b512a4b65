"""What holds for every request: who may ask, and what a browser may do with the answer.

Nobody is authenticated, so only names of this machine are answered: a page elsewhere, whose own name was made to lead
to 127.0.0.1, would else read everything here through its visitor's browser.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from slotkeeper.web.listen import names_loopback

#: No script, style, image or frame but ours, and no form that leads elsewhere.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Server": "slotkeeper",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The outermost middleware: refuses other names, and adds the headers to every answer."""
    if len(request.headers.getall("Host", [])) != 1 or not names_loopback(request.headers["Host"]):
        response: web.StreamResponse = web.Response(
            status=421, text="The dashboard answers only to localhost and loopback addresses.\n"
        )
    else:
        response = await handler(request)
    response.headers.update(HEADERS)
    return response
