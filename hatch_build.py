"""Build hook of the wheel: with ``MEMLITE_COMPILED=1``, some modules are compiled by mypyc.

pyproject.toml lists these modules. The modules in C are compiled with them and, if there is a
compiler, for an editable installation. Without the variable, building a wheel needs neither a
compiler nor mypy, and the Python counterparts are used.

    python hatch_build.py       # compiles the modules in C, in the checkout

``MEMLITE_COMPILED_OPTIMIZATION`` is the optimization level of the C compiler, 0 to 3. It defaults
to the level in pyproject.toml for the output of mypyc, and to 2 for the modules in C. At a low
level the compiler takes half as long.
"""

import contextlib
import os
import shlex
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_VARIABLE = "MEMLITE_COMPILED"
_OPTIMIZATION = "MEMLITE_COMPILED_OPTIMIZATION"
_IN_C = (
    Path("memlite/memory/shared/_native.c"),
    Path("memlite/proxy/_native.c"),
    Path("memlite/server/connections/_native.c"),
    Path("memlite/server/execution/_native.c"),
    Path("memlite/server/execution/records/_native.c"),
)


class CompiledBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Delegates to hatch-mypyc if compilation is requested, and cleans up the checkout afterwards.

    Compiled modules left in the checkout would be imported instead of the sources next to them.
    For the same reason an editable installation is never compiled.
    """

    def dependencies(self) -> list[str]:
        """Return the build's requirements besides hatchling."""
        return list(self.config["requires"]) if _is_wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the modules before the wheel is packed.

        Raises:
            ValueError: the variable is neither 0 nor 1, or the optimization is not 0 to 3.
            RuntimeError: the compilation failed; the output above says why.
        """
        self._mypyc: Any = None
        self._made: list[Path] = []
        if version == "editable":
            try:
                compile_extensions(Path(self.root))
            except OSError as error:
                self.app.display_info(f"the modules in C are not compiled: {error}")
        if not _is_wanted():
            return
        if version == "editable":
            self.app.display_warning(f"{_VARIABLE}: an editable installation stays pure Python")
            return
        # Imported here because only a compiled build depends on it.
        from hatch_mypyc.plugin import MypycBuildHook  # type: ignore[import-untyped]

        self._mypyc = MypycBuildHook(
            self.root,
            self.config | {"options": self.config["options"] | _optimization()},
            self.build_config,
            self.metadata,
            self.directory,
            self.target_name,
            self.app,
        )
        root = Path(self.root)
        there = [module for module in extensions_in(root) if module.exists()]
        try:
            # First, as this takes only seconds: mypy takes longer just to check the sources.
            for module in compile_extensions(root):
                build_data["artifacts"].append(f"/{module.relative_to(root)}")
            with _without_slow_warning():
                self._mypyc.initialize(version, build_data)
            self._made = [module for module in extensions_in(root) if module not in there]
        except Exception as error:
            self._mypyc.clean([version])
            for module in extensions_in(root):
                if module not in there:
                    module.unlink(missing_ok=True)
            raise RuntimeError(
                f"{_VARIABLE}=1 needs a C compiler and Python's headers; a pure build needs neither"
            ) from error

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the compiled modules from the checkout; the wheel contains them."""
        if self._mypyc is not None:
            self._mypyc.clean([version])
        for module in self._made:
            module.unlink()


@contextlib.contextmanager
def _without_slow_warning() -> Iterator[None]:
    """Turn off gcc's -Wmisleading-indentation, a part of -Wall, for compilations in the context.

    On the 44 MB of C that mypyc writes, this warning takes 70 of 110 seconds.
    """
    before = os.environ.get("CFLAGS")
    os.environ["CFLAGS"] = f"{before or ''} -Wno-misleading-indentation".strip()
    try:
        yield
    finally:
        if before is None:
            del os.environ["CFLAGS"]
        else:
            os.environ["CFLAGS"] = before


def extensions_in(root: Path) -> list[Path]:
    """Return the extension modules built from the sources in C."""
    suffix = str(sysconfig.get_config_var("EXT_SUFFIX"))
    return [root / source.with_suffix(suffix) for source in _IN_C]


def compile_extensions(root: Path) -> list[Path]:
    """Compile each source in C to an extension module next to it; return these modules.

    Raises:
        OSError: there is no compiler, or it failed.
    """
    targets = extensions_in(root)
    for source, target in zip(_IN_C, targets, strict=True):
        _compile(root / source, target)
    return targets


def _compile(source: Path, target: Path) -> None:
    partial = target.with_name(f"{target.name}.{os.getpid()}")
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    level = _optimization().get("opt_level", "2")
    flags = ["-std=c11", f"-O{level}", "-DNDEBUG", "-Wall", "-Wextra", "-Werror",
             "-Wno-unused-parameter", "-Wno-missing-field-initializers", "-shared", "-fPIC",
             "-pthread"]  # fmt: skip
    include = sysconfig.get_path("include")
    result = subprocess.run(  # noqa: S603 - the compiler that Python was built with, or CC
        [*compiler, *flags, f"-I{include}", str(source), "-o", str(partial)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if result.returncode:
        raise OSError(result.stderr)
    partial.replace(target)


def _is_wanted() -> bool:
    value = os.environ.get(_VARIABLE, "")
    if value not in ("", "0", "1"):
        raise ValueError(f"{_VARIABLE} must be 0 or 1, not {value!r}")
    return value == "1"


def _optimization() -> dict[str, str]:
    """Return mypyc's option for the optimization variable, if that is set."""
    value = os.environ.get(_OPTIMIZATION, "")
    if value not in ("", "0", "1", "2", "3"):
        raise ValueError(f"{_OPTIMIZATION} must be 0, 1, 2 or 3, not {value!r}")
    return {"opt_level": value} if value else {}


if __name__ == "__main__":
    compile_extensions(Path(__file__).parent)
