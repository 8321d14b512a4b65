"""Keeps the tables in order: reaper, fold of outcomes, sweeps, partitions ahead, retention. Every replica runs it."""

from slotkeeper.keeper.keeper import Keeper

__all__ = ["Keeper"]
