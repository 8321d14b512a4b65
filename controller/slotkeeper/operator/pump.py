"""kopf as a watch pump: it tells which objects changed, and nothing else.

One handler that neither waits nor fails; everything durable is the syncer's. No finalizers, annotations, timers or
Events of kopf. What the watch misses (an object that vanished while it was broken), the full resync finds. In a
thread and an event loop of its own, because kopf cancels the other tasks of its loop when it ends. A right that is
missing is waited for before kopf begins, because it would end kopf.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import kopf
import structlog

from slotkeeper.operator.errors import KubernetesForbidden
from slotkeeper.operator.kubernetes_gateway import PAGE, PLURAL, VERSION, KubernetesGateway
from slotkeeper.operator.permissions import Permission
from slotkeeper.spec import API_GROUP

_log = structlog.stdlib.get_logger()

#: Called with namespace, name, uid and body; the body is None when the object is gone.
Mark = Callable[[str, str, str, Mapping[str, Any] | None], None]

#: Seconds before a pump that ended is started again: doubled from the first to the last, with full jitter.
_FIRST_BACK_OFF, _LAST_BACK_OFF = 1.0, 60.0
#: Seconds between looks for a CRD that is not there yet, and for a right.
_CRD_SECONDS, _RIGHT_SECONDS = 2.0, 15.0
_CLOSE_SECONDS = 0.1
#: A stream that brings nothing for so long (seconds) is given up and begun where it ended: the network may drop its
#: packets without a word. The API server sends a bookmark about every minute, so a quiet one lives.
INACTIVITY_SECONDS = 70.0
#: Seconds to wait after each error of one request. Beyond them a refusal or a 5xx ends the pump, which is then started
#: anew; a network that is away is tried for ever.
ERROR_BACK_OFFS = (1, 2, 3, 5, 8, 13, 13)


class Pump:
    """Watches one namespace, or with None all of them. A 403 ends a kopf operator, so each has a pump of its own.

    ``listed`` is called when the watch begins anew with a list: what vanished before that, nobody tells.
    """

    def __init__(
        self,
        namespace: str | None,
        gateway: KubernetesGateway,
        mark: Mark,
        listed: Callable[[], None] = lambda: None,
    ) -> None:
        self.namespace = namespace
        self._gateway = gateway
        self._mark = mark
        self._listed = listed
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._end_watch: Callable[[], object] | None = None
        self._thread = threading.Thread(target=self._run, name=f"pump {namespace or '*'}", daemon=True)
        #: How often it ended by itself since the process began.
        self.restarts = 0

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def request_stop(self) -> None:
        """It ends soon; for stopping several at once."""
        self._stop.set()
        with self._lock:
            if self._end_watch is not None:
                self._end_watch()

    def stop(self, *, seconds: float = 10) -> None:
        """Ends it and waits for that, at most ``seconds``."""
        self.request_stop()
        if self._thread.is_alive():
            self._thread.join(seconds)

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._wait_until_served()
                asyncio.run(self._watch())
                reason = "it ended by itself"
                forbidden = False
            except Exception as error:  # noqa: BLE001 - whatever ends a watch, the process and its other loops live on
                reason = f"{type(error).__name__}: {error}"
                forbidden = getattr(error, "status", None) == 403
            if self._stop.is_set():
                return
            self.restarts += 1
            # Of a missing right the warning is that of `permissions`, which does not repeat itself.
            tell = _log.info if forbidden else _log.warning
            tell("pump_ended", namespace=self.namespace, restarts=self.restarts, reason=reason)
            bound = min(_LAST_BACK_OFF, _FIRST_BACK_OFF * 2.0 ** min(self.restarts, 10))
            self._stop.wait(random.uniform(0, bound))  # noqa: S311

    def _wait_until_served(self) -> None:
        """Returns when the CRD is there and we may list and watch. kopf looks once which resources exist; what comes
        later it would never watch.
        """
        told = False
        while not self._stop.is_set():
            try:
                served, wait = self._gateway.is_served(self.namespace), _CRD_SECONDS
                if served and self._gateway.may(Permission("watch", PLURAL, self.namespace)) is not False:
                    return
            except KubernetesForbidden:
                served = True
            if served:
                wait = _RIGHT_SECONDS
            elif not told:
                _log.warning("crd_missing", resource=f"{PLURAL}.{API_GROUP}", namespace=self.namespace)
                told = True
            self._stop.wait(wait)

    async def _watch(self) -> None:
        # A flag of this loop: for one of threads kopf keeps a thread waiting, and the loop would wait for that thread
        # minutes after the watch has ended by itself.
        end = asyncio.Event()
        with self._lock:
            self._end_watch = partial(asyncio.get_running_loop().call_soon_threadsafe, end.set)
        try:
            if not self._stop.is_set():
                await self._watch_until(end)
        finally:
            with self._lock:
                self._end_watch = None
            # kopf closes its connections without waiting; TLS needs some turns of the loop to say good-bye.
            await asyncio.sleep(_CLOSE_SECONDS)

    async def _watch_until(self, end: asyncio.Event) -> None:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(self._login)
        kopf.on.event(API_GROUP, VERSION, PLURAL, registry=registry)(self._changed)
        await kopf.operator(
            registry=registry,
            settings=_settings(),
            standalone=True,
            clusterwide=self.namespace is None,
            namespaces=() if self.namespace is None else (self.namespace,),
            stop_flag=end,
        )

    # kopf calls with everything by keyword; what is not used here lands in ``_``.
    async def _changed(self, event: Mapping[str, Any], **_: Any) -> None:
        body = event["object"]
        metadata = body["metadata"]
        key = (metadata["namespace"], metadata["name"], metadata["uid"])
        if event["type"] is None:
            self._listed()
        self._mark(*key, None if event["type"] == "DELETED" else _slim(body))

    def _login(self, **_: Any) -> kopf.ConnectionInfo:
        credentials = self._gateway.credentials()
        return kopf.ConnectionInfo(
            server=credentials.server,
            ca_path=credentials.ca_file,
            insecure=credentials.insecure,
            certificate_path=credentials.certificate_file,
            private_key_path=credentials.private_key_file,
            scheme=credentials.scheme,
            token=credentials.token,
        )


def _slim(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Without what nobody reads here, which may be most of an object: thousands of them wait at a start."""
    metadata = {name: value for name, value in body["metadata"].items() if name != "managedFields"}
    return {**body, "metadata": metadata}


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    settings.watching.connect_timeout = 10
    settings.watching.reconnect_backoff = 1.0
    # A list that takes so long that its rest has gone ends the pump, which begins anew.
    settings.watching.chunk_size = PAGE
    settings.watching.inactivity_timeout = INACTIVITY_SECONDS
    settings.networking.connect_timeout = 10
    settings.networking.request_timeout = 60
    settings.networking.error_backoffs = list(ERROR_BACK_OFFS)
    settings.execution.max_workers = 1
    return settings
