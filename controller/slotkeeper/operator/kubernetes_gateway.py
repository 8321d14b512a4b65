"""The only module that uses the ``kubernetes`` client: list, get, status, Events, rights, and who the cluster is.

Plain mappings go in and out, so that the client can be exchanged. No watching: that is the pump's. Every
request has a time-out; 429, 5xx and no answer are tried again with jitter, any other refusal is raised at once.
What a 403 says of our rights is kept in ``permissions``. Safe to share between threads.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import urllib3.exceptions
from kubernetes import client, config

from slotkeeper.errors import InvalidField
from slotkeeper.operator.errors import KubernetesError, KubernetesForbidden, KubernetesUnavailable
from slotkeeper.operator.permissions import (
    EVENTS,
    JOBSCHEDULES,
    NAMESPACES,
    STATUS,
    SYSTEM_NAMESPACE,
    Permission,
    Permissions,
    needed,
)
from slotkeeper.spec import API_GROUP, API_VERSION

T = TypeVar("T")
Object = Mapping[str, Any]

PLURAL = JOBSCHEDULES
VERSION = API_VERSION.partition("/")[2]
#: Objects of one page of a list.
PAGE = 500
#: Seconds to connect and to wait for an answer.
TIMEOUT = (5, 30)
_TRIES = 4
_FIRST_BACK_OFF, _LAST_BACK_OFF = 0.3, 5.0
#: Kept open; more than threads ask at the same time, status writers and pumps included.
_CONNECTIONS = 16
_LONGEST_MESSAGE = 500
#: Where a pod finds the namespace that it is in.
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, slots=True)
class Credentials:
    """How to reach the API server: what the pump needs for its own connections. Unused ways of logging in are None."""

    server: str
    ca_file: str | None
    insecure: bool
    certificate_file: str | None
    private_key_file: str | None
    scheme: str | None
    token: str | None


class KubernetesGateway:
    """One API server. ``kubeconfig`` None: the pod's service account, or the user's own configuration outside a
    pod.
    """

    def __init__(self, kubeconfig: Path | None = None, *, context: str | None = None) -> None:
        self._kubeconfig, self._context = kubeconfig, context
        self._in_pod = False
        self._configuration = self._load()
        self._configuration.connection_pool_maxsize = _CONNECTIONS
        # The retries of the client would repeat what is not ours to repeat; ours are below.
        self._configuration.retries = 0
        # The generated client types what it decodes as unions; here only plain JSON is read from it.
        self._client: Any = client.ApiClient(self._configuration)
        self._objects: Any = client.CustomObjectsApi(self._client)
        self._core: Any = client.CoreV1Api(self._client)
        self._authorization: Any = client.AuthorizationV1Api(self._client)
        #: What the API server refuses us now.
        self.permissions = Permissions()
        self._stopped = threading.Event()

    def request_stop(self) -> None:
        """From now on nothing is tried twice: whoever waits for an answer ends soon."""
        self._stopped.set()

    def close(self) -> None:
        """Closes the connections."""
        self.request_stop()
        self._client.close()

    def credentials(self) -> Credentials:
        """Read anew: a pod's token is replaced every hour."""
        configuration = self._load()
        scheme, _, token = (configuration.get_api_key_with_prefix("BearerToken") or "").rpartition(" ")
        return Credentials(
            server=configuration.host,
            ca_file=configuration.ssl_ca_cert,
            insecure=not configuration.verify_ssl,
            certificate_file=configuration.cert_file,
            private_key_file=configuration.key_file,
            scheme=(scheme or "Bearer") if token else None,
            token=token or None,
        )

    def own_namespace(self) -> str:
        """The namespace that is meant where none is named, as kubectl has it: the context's, a pod's own, `default`."""
        if self._in_pod:
            return _NAMESPACE_FILE.read_text().strip()
        file = None if self._kubeconfig is None else str(self._kubeconfig)
        untyped: Any = config
        contexts, current = untyped.list_kube_config_contexts(config_file=file)
        chosen = next((context for context in contexts if context["name"] == self._context), current)
        return str(chosen["context"].get("namespace") or "default")

    def cluster_identity(self) -> str:
        """The UID of the namespace kube-system, which lives as long as the cluster."""
        namespace = self._answer(
            lambda: self._core.read_namespace(SYSTEM_NAMESPACE, _request_timeout=TIMEOUT),
            Permission("get", NAMESPACES, SYSTEM_NAMESPACE),
        )
        return str(namespace.metadata.uid)

    def may(self, permission: Permission) -> bool | None:
        """Whether the API server allows it, by its own word; None when it does not tell."""
        allowed = self._ask(permission)
        if allowed is False:
            self._tell_refused(permission, "")
        return allowed

    def review(self, permissions: Iterable[Permission]) -> None:
        """Asks for each whether it is allowed; ``permissions`` then knows, and one warning for each namespace tells."""
        for permission in permissions:
            if self.may(permission) is None:
                self.permissions.forget(permission)

    def _ask(self, permission: Permission) -> bool | None:
        resource, _, subresource = permission.resource.partition("/")
        attributes = client.V1ResourceAttributes(
            group=permission.group,
            resource=resource,
            subresource=subresource or None,
            verb=permission.verb,
            namespace=permission.namespace,
            name=SYSTEM_NAMESPACE if permission.resource == NAMESPACES else None,
        )
        spec = client.V1SelfSubjectAccessReviewSpec(resource_attributes=attributes)
        body = client.V1SelfSubjectAccessReview(spec=spec)
        try:
            review = self._answer(
                lambda: self._authorization.create_self_subject_access_review(body, _request_timeout=TIMEOUT)
            )
        except KubernetesUnavailable:
            raise
        except KubernetesError:
            return None
        if review.status.allowed:
            self.permissions.granted(permission)
        else:
            self.permissions.refused(permission)
        return bool(review.status.allowed)

    def _tell_refused(self, permission: Permission, said: str) -> None:
        if not self.permissions.refused(permission):
            return
        # What is missing seldom comes alone, and one warning tells it better than six.
        if permission.resource != NAMESPACES:
            for other in needed([permission.namespace]):
                if other.resource != NAMESPACES and other != permission:
                    self._ask(other)
        self.permissions.tell(permission.namespace, said)

    def list_objects(self, namespace: str | None) -> Iterator[list[Object]]:
        """Every JobSchedule of ``namespace``, or of all of them, page by page: a consistent read of one instant.

        Raises KubernetesError with status 410 when the pages took so long that the rest of them has gone.
        """
        more: str | None = None
        while True:
            page: Any = self._answer(
                partial(self._list_page, namespace, more), Permission("list", JOBSCHEDULES, namespace)
            )
            yield list(page["items"])
            more = page["metadata"].get("continue")
            if not more:
                return

    def is_served(self, namespace: str | None) -> bool:
        """Whether the API server knows JobSchedules: false until the CRD is installed."""
        try:
            self._answer(partial(self._list_page, namespace, None, 1), Permission("list", JOBSCHEDULES, namespace))
        except KubernetesError as error:
            if error.status == 404:
                return False
            raise
        return True

    def get(self, namespace: str, name: str) -> Object | None:
        """The object, or None when the API server says that there is none (404)."""
        try:
            found: Object = self._answer(
                lambda: self._objects.get_namespaced_custom_object(
                    API_GROUP, VERSION, namespace, PLURAL, name, _request_timeout=TIMEOUT
                ),
                Permission("get", JOBSCHEDULES, namespace),
            )
        except KubernetesError as error:
            if error.status == 404:
                return None
            raise
        return found

    def patch_status(self, namespace: str, name: str, status: Mapping[str, object]) -> Object | None:
        """Merges ``status`` into the object's; returns the object as it is then, None when it is gone."""
        try:
            patched: Object = self._answer(
                lambda: self._objects.patch_namespaced_custom_object_status(
                    API_GROUP,
                    VERSION,
                    namespace,
                    PLURAL,
                    name,
                    {"status": status},
                    _content_type="application/merge-patch+json",
                    _request_timeout=TIMEOUT,
                ),
                Permission("patch", STATUS, namespace),
            )
        except KubernetesError as error:
            if error.status == 404:
                return None
            raise
        return patched

    def create_event(self, namespace: str, event: Mapping[str, object]) -> bool:
        """Creates a core/v1 Event; False when one of this name exists already."""
        try:
            self._answer(
                lambda: self._core.create_namespaced_event(
                    namespace, client.CoreV1Event.from_dict(dict(event)), _request_timeout=TIMEOUT
                ),
                Permission("create", EVENTS, namespace),
            )
        except KubernetesError as error:
            if error.status == 409:
                return False
            raise
        return True

    def patch_event(self, namespace: str, name: str, change: Mapping[str, object]) -> Object | None:
        """Merges ``change`` into an Event; returns it as it is then, None when it is gone.

        An empty change reads it, for which there is no other right. Raises KubernetesError with status 409 when
        ``change`` names a resourceVersion that is no longer the newest.
        """
        try:
            patched: Any = self._answer(
                lambda: self._core.patch_namespaced_event(
                    name,
                    namespace,
                    dict(change),
                    _content_type="application/merge-patch+json",
                    _request_timeout=TIMEOUT,
                ),
                Permission("patch", EVENTS, namespace),
            )
        except KubernetesError as error:
            if error.status == 404:
                return None
            raise
        found: Object = self._client.sanitize_for_serialization(patched)
        return found

    def _list_page(self, namespace: str | None, start: str | None, limit: int = PAGE) -> Any:
        more: dict[str, Any] = {"limit": limit, "_request_timeout": TIMEOUT}
        if start is not None:
            more["_continue"] = start
        if namespace is None:
            return self._objects.list_cluster_custom_object(API_GROUP, VERSION, PLURAL, **more)
        return self._objects.list_namespaced_custom_object(API_GROUP, VERSION, namespace, PLURAL, **more)

    def _answer(self, request: Callable[[], T], permission: Permission | None = None) -> T:
        """``permission`` is what the request needs; None: what everybody has."""
        for attempt in range(1, _TRIES + 1):
            try:
                answer = request()
            except client.ApiException as error:
                status = int(error.status or 0)
                said = _said(error)
                message = f"the API server answered {status} {error.reason}: {said}"
                if status == 403:
                    # So every authorizer's refusal reads; a 403 of admission (a namespace that ends) is another thing.
                    if permission is not None and f"cannot {permission.verb} resource" in said:
                        self._tell_refused(permission, said)
                    raise KubernetesForbidden(message, status=status) from error
                if status != 429 and status < 500:
                    raise KubernetesError(message, status=status) from error
                failure = KubernetesUnavailable(message, status=status)
                wait = _retry_after(error)
            except (urllib3.exceptions.HTTPError, OSError) as error:
                failure = KubernetesUnavailable(f"the API server does not answer: {error}")
                wait = None
            else:
                if permission is not None:
                    self.permissions.granted(permission)
                return answer
            bound = min(_LAST_BACK_OFF, _FIRST_BACK_OFF * 2.0**attempt)
            # Jitter is added even to what the server asks for: it asks everybody for the same.
            pause = (wait or 0.0) + random.uniform(0, bound)  # noqa: S311
            if attempt == _TRIES or self._stopped.wait(pause):
                break
        raise failure

    def _load(self) -> client.Configuration:
        configuration = client.Configuration()
        load: Any = config
        try:
            if self._kubeconfig is not None or self._context is not None:
                load.load_kube_config(
                    config_file=None if self._kubeconfig is None else str(self._kubeconfig),
                    context=self._context,
                    client_configuration=configuration,
                )
                return configuration
            try:
                load.load_incluster_config(client_configuration=configuration)
                self._in_pod = _NAMESPACE_FILE.exists()
            except config.ConfigException:
                load.load_kube_config(client_configuration=configuration)
        except (config.ConfigException, OSError) as error:
            raise InvalidField(
                "--kubeconfig",
                f"no way to the API server: {error}",
                instead="run in a pod with a service account, or name a kubeconfig file",
            ) from error
        return configuration


def _said(error: client.ApiException) -> str:
    """What a person should read of the answer: the message of its Status, or its text."""
    body = error.body or ""
    text = body if isinstance(body, str) else body.decode(errors="replace")
    try:
        status = json.loads(text)
        return str(status["message"])[:_LONGEST_MESSAGE]
    except (ValueError, TypeError, KeyError):
        return text[:_LONGEST_MESSAGE].strip()


def _retry_after(error: client.ApiException) -> float | None:
    try:
        return min(float((error.headers or {}).get("Retry-After", "")), 30.0)
    except ValueError:
        return None
