"""What an idle controller and an idle worker cost: CPU seconds per minute and memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from server import benchmark_server

from slotkeeper.child_process import dies_with_parent

SECONDS = float(os.environ.get("BENCH_SECONDS", "30"))
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(process_id: int) -> float:
    """User and system time of a process: proc(5), fields 14 and 15."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident_megabytes(process_id: int) -> float:
    """Memory that a process occupies now."""
    status = Path(f"/proc/{process_id}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def main() -> None:
    """Prints one JSON line per process."""
    with benchmark_server() as server:
        server.recreate()
        commands = {"controller": ["controller", "--no-kubernetes"], "worker": ["worker"]}
        processes = {
            name: subprocess.Popen(
                [sys.executable, "-m", "slotkeeper.cli", *command, "--dsn", server.dsn, "--listen", "off"],
                preexec_fn=dies_with_parent(signal.SIGKILL),
            )
            for name, command in commands.items()
        }
        try:
            time.sleep(10)
            before = {name: cpu_seconds(process.pid) for name, process in processes.items()}
            time.sleep(SECONDS)
            for name, process in processes.items():
                spent = (cpu_seconds(process.pid) - before[name]) * 60 / SECONDS
                line = {"cpu_seconds_per_minute": round(spent, 2), "megabytes": round(resident_megabytes(process.pid))}
                print(json.dumps({"benchmark": "idle", "process": name, **line}))
        finally:
            for process in processes.values():
                process.terminate()
            for process in processes.values():
                process.wait(60)


if __name__ == "__main__":
    main()
