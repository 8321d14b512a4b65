"""``python -m slotkeeper.cli``: the command where no script is installed."""

from slotkeeper.cli.main import main

main()
