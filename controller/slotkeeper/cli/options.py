"""Options that several commands share. Every flag is also ``SLOTKEEPER_<FLAG>``; a flag beats the environment."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import Any, NamedTuple

import click

from slotkeeper.metrics.address import Address
from slotkeeper.metrics.scaling import ScalingSettings
from slotkeeper.spec.instants import parse_instant
from slotkeeper.web.listen import DEFAULT_LISTEN, listen_address

#: Of ``--from``: slots are looked for some years to both sides of it, and a year has four digits.
_FIRST_YEAR, _LAST_YEAR = 1900, 9900


def option(flag: str, *more: str, **settings: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A click option whose variable is ``SLOTKEEPER_`` and the flag's name (of ``--on/--off`` the first).

    ``more``: a short form, and the name of the argument where it is another.
    """
    name = flag.partition("/")[0].removeprefix("--").replace("-", "_").upper()
    return click.option(flag, *more, envvar=f"SLOTKEEPER_{name}", show_envvar=True, **settings)


dsn = option("--dsn", required=True, help="Postgres, as a libpq URL or keyword string.")
log_format = option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Of stderr."
)
log_level = option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="The least that is logged.",
)


def begin(meaning: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``--from``; the command gets an instant as its argument ``begin``, or None for now."""
    return option("--from", "begin", metavar="TIME", callback=_begin, help=f"RFC 3339: {meaning}. Default: now.")


def _begin(_: click.Context, __: click.Parameter, value: str | None) -> datetime | None:
    if value is None or value == "now":
        return None
    try:
        instant = parse_instant(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not RFC 3339 ({error}); write 2026-11-30T10:45:00Z, or now") from error
    if not _FIRST_YEAR <= instant.year <= _LAST_YEAR:
        raise click.BadParameter(f"{value!r}: its year is outside {_FIRST_YEAR} to {_LAST_YEAR}; write one within them")
    return instant


def listen(default: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``--listen``; the command gets an Address, or None for ``off``."""
    return option(
        "--listen",
        default=default,
        show_default=True,
        callback=lambda _, __, value: Address.parse(value, "--listen"),
        help="ADDRESS:PORT of probes and metrics, or off.",
    )


def dashboard_listen(command: Callable[..., None]) -> Callable[..., None]:
    """``--dashboard-listen``; the command gets a loopback address, or None for ``off``."""
    return option(
        "--dashboard-listen",
        default=DEFAULT_LISTEN,
        show_default=True,
        callback=lambda _, __, value: listen_address(value),
        help="ADDRESS:PORT of the dashboard, loopback addresses only, or off.",
    )(command)


def comma_separated(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...]:
    """``a,b`` as a tuple."""
    return tuple(part.strip() for part in (value or "").split(",") if part.strip())


class Pool(NamedTuple):
    """The key of a worker pool."""

    namespace: str
    name: str


def pool(value: str, *, namespace: str = "") -> Pool:
    """``NAMESPACE/NAME``, or ``NAME`` in ``namespace`` where there is one."""
    given, slash, name = value.rpartition("/")
    if not name or "/" in given or not (given if slash else namespace):
        raise click.BadParameter(f"{value!r} is no pool; write NAMESPACE/NAME" + (" or NAME" if namespace else ""))
    return Pool(given or namespace, name)


def scaling(command: Callable[..., None]) -> Callable[..., None]:
    """The settings of the numbers for autoscaling; the command gets them as its argument ``scaling``."""

    @wraps(command)
    def call(
        *args: Any, scaling_horizon_seconds: float, scaling_drain_seconds: float, scaling_most_workers: int, **more: Any
    ) -> None:
        settings = ScalingSettings(scaling_horizon_seconds, scaling_drain_seconds, scaling_most_workers)
        command(*args, scaling=settings, **more)

    default = ScalingSettings()
    horizon = option(
        "--scaling-horizon-seconds",
        type=click.FloatRange(0, 3600),
        default=default.horizon_seconds,
        show_default=True,
        help="How far ahead runs and slots count for a pool's wanted workers.",
    )
    drain = option(
        "--scaling-drain-seconds",
        type=click.FloatRange(0),
        default=default.drain_seconds,
        show_default=True,
        help="A worker that holds a run older than this is wanted: the --drain-seconds of the workers.",
    )
    most = option(
        "--scaling-most-workers",
        type=click.IntRange(1, 100_000),
        default=default.most_workers,
        show_default=True,
        help="A queue's runs are counted up to what so many workers run at a time.",
    )
    return horizon(drain(most(call)))
