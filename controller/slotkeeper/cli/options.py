"""Options that several commands share. Every flag is also ``SLOTKEEPER_<FLAG>``; a flag beats the environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def option(flag: str, **settings: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A click option whose variable is ``SLOTKEEPER_`` and the flag's name (of ``--on/--off`` the first)."""
    name = flag.partition("/")[0].removeprefix("--").replace("-", "_").upper()
    return click.option(flag, envvar=f"SLOTKEEPER_{name}", show_envvar=True, **settings)


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


def comma_separated(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...]:
    """``a,b`` as a tuple."""
    return tuple(part.strip() for part in (value or "").split(",") if part.strip())
