"""What builds the wheel: pure Python, or, with ``MEMLITE_COMPILED=1``, compiled in part by mypyc.

Which modules are compiled is said in pyproject.toml. Without the variable nothing here does
anything, and a build needs neither a compiler nor mypy.
"""

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_VARIABLE = "MEMLITE_COMPILED"


class CompiledBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Hands over to hatch-mypyc if it is wanted, and leaves nothing of it in the checkout.

    In the checkout, what was compiled would be imported instead of the sources beside it. For the
    same reason an editable installation is never compiled.
    """

    def dependencies(self) -> list[str]:
        """Return what the build needs besides hatchling."""
        return list(self.config["requires"]) if _is_wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, before the wheel is packed.

        Raises:
            ValueError: the variable is neither 0 nor 1.
            RuntimeError: the compilation failed; the text before says why.
        """
        self._mypyc: Any = None
        if not _is_wanted():
            return
        if version == "editable":
            self.app.display_warning(f"{_VARIABLE}: an editable installation stays pure Python")
            return
        # Not above: it is a dependency only of this build.
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
                f"{_VARIABLE}=1 needs a C compiler and Python's headers; without it, neither"
            ) from error

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled; the wheel has it."""
        if self._mypyc is not None:
            self._mypyc.clean([version])


def _is_wanted() -> bool:
    value = os.environ.get(_VARIABLE, "")
    if value not in ("", "0", "1"):
        raise ValueError(f"{_VARIABLE} must be 0 or 1, not {value!r}")
    return value == "1"
