"""The machine's resources that the process may use."""

import os
from pathlib import Path

from memlite.core.machine import free_memory, usable_cores


def group_of(root: Path) -> Path:
    """Create the folder of this process's control group below `root`, and return it."""
    text = Path("/proc/self/cgroup").read_text()
    own = next((line[3:] for line in text.splitlines() if line.startswith("0::")), "")
    group = root / own.lstrip("/")
    group.mkdir(parents=True, exist_ok=True)
    return group


def test_usable_cores_respect_affinity_and_the_cpu_limit(tmp_path: Path) -> None:
    available = len(os.sched_getaffinity(0))
    assert usable_cores(tmp_path) == available
    limit = group_of(tmp_path) / "cpu.max"
    limit.write_text("max 100000\n")
    assert usable_cores(tmp_path) == available
    limit.write_text("20000 100000\n")
    assert usable_cores(tmp_path) == 1
    limit.write_text("6400000 100000\n")
    assert usable_cores(tmp_path) == available


def test_memory_is_that_of_the_machine_or_of_the_control_group(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    assert free_memory(tmp_path, meminfo) is None
    meminfo.write_text("MemTotal:  9000 kB\nMemAvailable:    1000 kB\n")
    assert free_memory(tmp_path, meminfo) == 1000 * 1024
    group = group_of(tmp_path)
    (group / "memory.max").write_text("max\n")
    (group / "memory.current").write_text("5000\n")
    assert free_memory(tmp_path, meminfo) == 1000 * 1024
    (group / "memory.max").write_text("9000\n")
    (group / "memory.stat").write_text("anon 1\ninactive_file 700\n")
    assert free_memory(tmp_path, meminfo) == 4700
    (group / "memory.max").write_text("100\n")
    assert free_memory(tmp_path, meminfo) == 0
