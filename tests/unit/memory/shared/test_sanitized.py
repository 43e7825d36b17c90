"""The table in C does what it is tested for under the address and undefined-behaviour sanitizers.

Not under the thread sanitizer: processes share the table, which it does not see, and a reader
copies what may be overwritten meanwhile, on purpose, and looks at the segment's generation then.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.support.paths import ROOT

COMPILER = shutil.which("gcc")
FLAGS = [
    "-std=c11", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined",
    "-shared", "-fPIC", "-pthread",
]  # fmt: skip
RUN = """
import importlib.machinery, importlib.util, sys
import pytest
name = "memlite.memory.shared._native"
loader = importlib.machinery.ExtensionFileLoader(name, sys.argv[1])
module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
loader.exec_module(module)
sys.modules[name] = module
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *sys.argv[2:]]))
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(sys.platform != "linux" or COMPILER is None, reason="needs gcc on Linux")
def test_the_table_in_c_under_sanitizers(tmp_path: Path) -> None:
    module = tmp_path / "_native.so"
    source = ROOT / "memlite/memory/shared/_native.c"
    command = [str(COMPILER), *FLAGS, f"-I{sysconfig.get_path('include')}", str(source)]
    subprocess.run([*command, "-o", module], check=True)
    names = ("libasan.so", "libubsan.so")
    libraries = [
        subprocess.run(
            [str(COMPILER), f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in names
    ]
    if not all(Path(one).is_absolute() for one in libraries):
        pytest.skip("gcc has no sanitizers here")
    tests = ["tests/unit/memory/shared/test_twins.py", "tests/unit/engine/test_shared_plain.py"]
    done = subprocess.run(
        [sys.executable, "-c", RUN, module, *tests],
        env={
            **os.environ,
            "LD_PRELOAD": " ".join(libraries),
            "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter's own
        },
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "AddressSanitizer" not in done.stderr
