"""Building the wheel: pure by default, compiled on request, with no files left in the checkout."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PARTS = ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE")
IN_C = {
    str(source.relative_to(ROOT).with_suffix(""))
    for source in (ROOT / "memlite").rglob("_native.c")
}
COMPILER = shutil.which(os.environ.get("CC", "cc"))
HEADERS = Path(sysconfig.get_path("include"), "Python.h")


def has_compiler() -> bool:
    return COMPILER is not None and HEADERS.exists()


needs_compiler = pytest.mark.skipif(
    not has_compiler(), reason="no C compiler, or no headers of this Python"
)
pytestmark = pytest.mark.skipif(
    not (ROOT / "hatch_build.py").exists(),
    reason="the tests run on an installed wheel, without a checkout",
)
LITTLE = """#include <Python.h>
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", NULL, -1, NULL};
PyMODINIT_FUNC PyInit__native(void) { return PyModule_Create(&definition); }
"""
# A pure build must not even look up these tools.
WITHOUT_MYPY = "import sys; sys.modules['hatch_mypyc'] = sys.modules['mypy'] = None; "


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in PARTS:
        shutil.copy(ROOT / name, checkout)
    shutil.copytree(
        ROOT / "memlite", checkout / "memlite", ignore=shutil.ignore_patterns("__pycache__")
    )
    return checkout


def build(
    checkout: Path, call: str, *, first: str = "", fails: bool = False, **variables: str
) -> str:
    """Call one of hatchling's hooks as pip does; return its result, or its error message."""
    environment = {name: os.environ[name] for name in ("PATH", "CC") if name in os.environ}
    run = subprocess.run(
        [sys.executable, "-c", f"{first}from hatchling.build import *; print('=', {call})"],
        cwd=checkout,
        env=environment | {"PYTHONDONTWRITEBYTECODE": "1"} | variables,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert bool(run.returncode) == fails, run.stdout + run.stderr
    return run.stderr if fails else run.stdout.rpartition("= ")[2].strip()


def trace(checkout: Path) -> list[str]:
    """Return the files of a checkout, except those that mypy and hatchling always leave."""
    return sorted(
        str(file.relative_to(checkout))
        for file in checkout.rglob("*")
        if file.is_file() and file.relative_to(checkout).parts[0] not in (".mypy_cache", "dist")
    )


@pytest.mark.parametrize("variables", [{}, {"MEMLITE_COMPILED": ""}, {"MEMLITE_COMPILED": "0"}])
def test_by_default_the_wheel_is_pure_and_needs_no_compiler(
    checkout: Path, variables: dict[str, str]
) -> None:
    assert build(checkout, "get_requires_for_build_wheel()", **variables) == "[]"
    name = build(checkout, "build_wheel('dist')", first=WITHOUT_MYPY, **variables)
    assert re.fullmatch(r"memlite_cache-[\d.]+-py3-none-any\.whl", name)
    assert not extensions(checkout / "dist" / name)


def with_little_c(checkout: Path) -> Path:
    """Replace the C sources, which compile slowly; another test builds the real ones."""
    for source in (checkout / "memlite").rglob("_native.c"):
        source.write_text(LITTLE)
    return checkout


def extensions(wheel: Path) -> list[str]:
    names = zipfile.ZipFile(wheel).namelist()
    return [name for name in names if name.endswith((".so", ".pyd"))]


@needs_compiler
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_wheel_is_compiled_on_request(checkout: Path) -> None:
    """MEMLITE_TEST_WHEEL may name an existing wheel, as building one takes a minute."""
    pytest.importorskip("hatch_mypyc", reason="hatch-mypyc is not installed")
    built = os.environ.get("MEMLITE_TEST_WHEEL")
    wheel = Path(built) if built else compile_wheel(checkout)
    assert not wheel.name.endswith("any.whl")
    assert compiled_modules(wheel) == to_be_compiled()


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_compiling_leaves_no_files(checkout: Path) -> None:
    """Neither without a compiler, which is reported, nor with one; mypy runs only once."""
    pytest.importorskip("hatch_mypyc", reason="hatch-mypyc is not installed")
    project = with_little_c(checkout) / "pyproject.toml"
    all_of_it = project.read_text()
    few = re.sub(
        r"(?s)(hooks\.custom\].*?\ninclude = \[).*?\n\]", r'\1"/memlite/core/clock.py"]', all_of_it
    )
    assert few != all_of_it
    project.write_text(few)
    # Through this file, mypy would follow imports to the whole package.
    (checkout / "memlite" / "__init__.py").write_text('__version__ = "0"\n')
    before = trace(checkout)
    variables = {"MEMLITE_COMPILED": "1", "CC": "/no/compiler"}
    complaint = build(checkout, "build_wheel('dist')", fails=True, **variables)
    assert complaint.endswith(
        "MEMLITE_COMPILED=1 needs a C compiler and Python's headers; a pure build needs neither\n"
    )
    assert "/no/compiler" in complaint  # the cause is included
    assert trace(checkout) == before
    if has_compiler():
        assert compiled_modules(compile_wheel(checkout)) == {
            "memlite/core/clock",
            *IN_C,
        }
        assert trace(checkout) == before


def compile_wheel(checkout: Path) -> Path:
    # The C compiler need not optimize: nothing is run here.
    variables = {"MEMLITE_COMPILED": "1", "MEMLITE_COMPILED_OPTIMIZATION": "0"}
    return checkout / "dist" / build(checkout, "build_wheel('dist')", **variables)


def compiled_modules(wheel: Path) -> set[str]:
    return {module.partition(".")[0] for module in extensions(wheel)} - {"memlite__mypyc"}


def to_be_compiled() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    hook = project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    sources: set[Path] = set()
    for pattern in hook["include"]:
        found = set(ROOT.glob(pattern.removeprefix("/")))
        assert found, pattern
        sources |= found
    for pattern in hook["exclude"]:
        sources -= set(ROOT.glob(pattern.removeprefix("/")))
    modules = {str(file.relative_to(ROOT).with_suffix("")) for file in sources}
    return {*modules, *IN_C}


def test_build_requirements_equal_the_versions_in_the_test_environment(checkout: Path) -> None:
    text = build(checkout, "*get_requires_for_build_wheel()", MEMLITE_COMPILED="1")
    required = text.split()
    assert {one.partition("==")[0] for one in required} == {"hatch-mypyc", "mypy", "setuptools"}
    assert pinned(required) == required


def pinned(required: Sequence[str]) -> list[str]:
    """Return the requirements that the lock file of the tests pins to exactly these versions."""
    lock = (ROOT / "requirements" / "test.txt").read_text()
    return [one for one in required if re.search(rf"^{re.escape(one)} ", lock, re.MULTILINE)]


def test_build_requirements_are_pinned_identically() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    required = project["build-system"]["requires"]
    assert required
    assert pinned(required) == required


@pytest.mark.slow
def test_an_editable_installation_stays_pure(checkout: Path) -> None:
    before = trace(with_little_c(checkout))
    name = build(checkout, "build_editable('dist')", first=WITHOUT_MYPY, MEMLITE_COMPILED="1")
    assert name.endswith("py3-none-any.whl")
    assert trace(checkout) == before


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({"MEMLITE_COMPILED": "yes"}, "MEMLITE_COMPILED must be 0 or 1, not 'yes'"),
        (
            {"MEMLITE_COMPILED": "1", "MEMLITE_COMPILED_OPTIMIZATION": "fast"},
            "MEMLITE_COMPILED_OPTIMIZATION must be 0, 1, 2 or 3, not 'fast'",
        ),
    ],
)
def test_invalid_values_are_refused(
    checkout: Path, variables: dict[str, str], problem: str
) -> None:
    complaint = build(checkout, "build_wheel('dist')", fails=True, **variables)
    assert complaint.endswith(f"ValueError: {problem}\n")


def test_a_release_has_compiled_wheels_for_every_supported_version_of_python():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheels = project["tool"]["cibuildwheel"]
    versions = sorted(int(re.fullmatch(r"cp3(\d+)-\*", one)[1]) for one in wheels["build"])
    assert project["project"]["requires-python"] == f">=3.{versions[0]}"
    assert versions == list(range(11, 15))
    assert wheels["linux"]["archs"] == ["x86_64", "aarch64"]
    hook = (ROOT / "hatch_build.py").read_text()
    assert [*wheels["environment"]] == re.findall(r'^_VARIABLE = "(\w+)"$', hook, re.MULTILINE)
