"""Build hook of the wheel: with ``MEMLITE_COMPILED=1``, some modules are compiled by mypyc.

pyproject.toml lists these modules. Without the variable the hook does nothing, and a build needs
neither a compiler nor mypy.
"""

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_VARIABLE = "MEMLITE_COMPILED"


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
            ValueError: the variable is neither 0 nor 1.
            RuntimeError: the compilation failed; the output above says why.
        """
        self._mypyc: Any = None
        if not _is_wanted():
            return
        if version == "editable":
            self.app.display_warning(f"{_VARIABLE}: an editable installation stays pure Python")
            return
        # Imported here: only a compiled build depends on it.
        from hatch_mypyc.plugin import MypycBuildHook  # type: ignore[import-untyped]

        self._mypyc = MypycBuildHook(
            self.root,
            self.config,
            self.build_config,
            self.metadata,
            self.directory,
            self.target_name,
            self.app,
        )
        try:
            self._mypyc.initialize(version, build_data)
        except Exception as error:
            self._mypyc.clean([version])
            raise RuntimeError(
                f"{_VARIABLE}=1 needs a C compiler and Python's headers; a pure build needs neither"
            ) from error

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the compiled modules from the checkout; the wheel contains them."""
        if self._mypyc is not None:
            self._mypyc.clean([version])


def _is_wanted() -> bool:
    value = os.environ.get(_VARIABLE, "")
    if value not in ("", "0", "1"):
        raise ValueError(f"{_VARIABLE} must be 0 or 1, not {value!r}")
    return value == "1"
