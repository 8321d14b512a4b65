"""Imports what registers handlers, in the worker and in its handler processes alike."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from slotkeeper.errors import InvalidField


def import_app(modules: Sequence[str]) -> None:
    """Imports modules; the current folder is on the path. What fails inside one is shown with its traceback.

    Raises InvalidField for a module that is not there.
    """
    sys.path.insert(0, str(Path.cwd()))
    for module in modules:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise
            raise InvalidField(
                "--app", f"there is no module {module!r} here", instead="a module on PYTHONPATH"
            ) from error
