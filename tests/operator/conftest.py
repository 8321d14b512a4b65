"""Fixtures of this room."""

from __future__ import annotations

import sys
from pathlib import Path

# The folder's name is that of a module of the standard library, so its modules are found by their own names.
sys.path.insert(0, str(Path(__file__).parent))
