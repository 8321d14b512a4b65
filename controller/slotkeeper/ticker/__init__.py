"""Turns every slot that falls due into exactly one row, or into one record of why it did not become one.

Every replica ticks; they cannot collide, because a decision is stored only while the schedule still has the
version and watermark it was made from. Needs no Kubernetes.
"""

from slotkeeper.ticker.decide import DecisionMaker
from slotkeeper.ticker.ticker import Ticker

__all__ = ["DecisionMaker", "Ticker"]
