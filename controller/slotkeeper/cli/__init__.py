"""The command line: ``slotkeeper …``. The only room that may import every other."""
