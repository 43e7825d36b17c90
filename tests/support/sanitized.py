"""Modules in C, built with the address and undefined-behaviour sanitizers."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.paths import ROOT

__all__ = ["needs_sanitizers", "run_sanitized"]

COMPILER = shutil.which("gcc")
# Optimizing code with so many checks takes longer than it saves in the tests.
FLAGS = [
    "-std=c11", "-O0", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined",
    "-shared", "-fPIC", "-pthread",
]  # fmt: skip
RUN = """
import importlib.machinery, importlib.util, sys
import pytest
name, path, *tests = sys.argv[1:]
loader = importlib.machinery.ExtensionFileLoader(name, path)
module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
loader.exec_module(module)
sys.modules[name] = module
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]))
"""

needs_sanitizers = pytest.mark.skipif(
    sys.platform != "linux" or COMPILER is None, reason="needs gcc on Linux"
)


def run_sanitized(
    folder: Path,
    name: str,
    *tests: str,
    without: str = "",
    flags: Sequence[str] = (),
    allocator: str = "pymalloc",
) -> None:
    """Run tests with a module in C that is built with sanitizers.

    Args:
        folder: where the module is built.
        name: the name of the module.
        tests: files of tests that use it.
        without: the tests to leave out, as an expression for pytest's ``-k``.
        flags: additional compiler flags.
        allocator: Python's: "pymalloc", or "malloc", which takes twice as long, but does not hide
            memory next to small objects from the sanitizers.
    """
    chosen = ("-k", f"not ({without})") if without else ()
    module = folder / "_native.so"
    source = ROOT / (name.replace(".", "/") + ".c")
    if not source.exists():
        pytest.skip("the tests run on an installed wheel, without a checkout")
    command = [str(COMPILER), *FLAGS, *flags, f"-I{sysconfig.get_path('include')}", str(source)]
    subprocess.run([*command, "-o", module], check=True)
    libraries = [
        subprocess.run(
            [str(COMPILER), f"-print-file-name={library}"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for library in ("libasan.so", "libubsan.so")
    ]
    if not all(Path(one).is_absolute() for one in libraries):
        pytest.skip("gcc has no sanitizers here")
    done = subprocess.run(
        [sys.executable, "-c", RUN, name, module, *chosen, *tests],
        env={
            **os.environ,
            "LD_PRELOAD": " ".join(libraries),
            "PYTHONMALLOC": allocator,
            "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter's own
        },
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "AddressSanitizer" not in done.stderr
