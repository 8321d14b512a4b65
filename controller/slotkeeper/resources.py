"""Where the files that travel with the package lie: migrations and SQL functions, and the CRD.

Only finds folders; reading and understanding the files is the work of the rooms that own them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal


def resource_folder(name: Literal["sql", "crds"]) -> Path:
    """The folder ``name``: inside the installed package, or at the top of a checkout.

    Raises FileNotFoundError, naming both places, when it is in neither.
    """
    package = Path(__file__).resolve().parent
    installed, checkout = package / "data" / name, package.parents[1] / name
    for folder in (installed, checkout):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"the folder {name} is neither at {installed} nor at {checkout}")
