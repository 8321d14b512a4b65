"""Keeps the stored schedules equal to the JobSchedules of a cluster, and writes their status back.

``Applier`` (and what it needs) knows no Kubernetes and serves `slotkeeper dev` too; ``Operator`` is the whole.
Slots fall due without it: the ticker needs only the database.
"""

from slotkeeper.operator.accept import Accepted, Refusal, accept
from slotkeeper.operator.applied import Applied, Outcome
from slotkeeper.operator.apply import Applier
from slotkeeper.operator.operator import Operator

__all__ = ["Accepted", "Applied", "Applier", "Operator", "Outcome", "Refusal", "accept"]
