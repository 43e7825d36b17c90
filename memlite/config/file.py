"""The settings file, in TOML. Imported only when a server is given one."""

import tomllib
from collections.abc import Iterator
from typing import Final

from memlite.config.options import OPTIONS_BY_NAME, Option
from memlite.core.errors import ConfigError
from memlite.core.files import read_whole

__all__ = ["read_file"]

_MAX_FILE_SIZE: Final = 1024 * 1024


def read_file(path: str) -> Iterator[tuple[Option, str]]:
    """Yield each option in a settings file, with its value as text.

    Raises:
        ConfigError: the file cannot be read, is not TOML or has an unknown setting.
    """
    try:
        table = tomllib.loads(read_whole(path, _MAX_FILE_SIZE).content.decode())
    except OSError as error:
        raise ConfigError(f"--config: {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config: {path}: {error}") from None
    for key, value in table.items():
        option = OPTIONS_BY_NAME.get(key.replace("_", "-"))
        if option is None:
            raise ConfigError(f"{path}: unknown setting {key!r}")
        if option.name == "unix-mask" and not isinstance(value, str):
            # TOML reads 700 as decimal and 0o700 as octal; only a string has the meaning of the
            # flag.
            raise ConfigError(f'{path}: {key}: must be a string such as "700"')
        yield option, _text(path, key, value)


def _text(path: str, key: str, value: object) -> str:
    """Return a TOML value as text, in the form that the flag takes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list):
        return ",".join(_text(path, key, part) for part in value)
    if isinstance(value, dict) and key == "extended":
        parts = []
        for name, part in value.items():
            if part is False:
                raise ConfigError(f"{path}: {key}.{name}: omit it instead of setting it to false")
            parts.append(name if part is True else f"{name}={_text(path, key, part)}")
        return ",".join(parts)
    raise ConfigError(f"{path}: {key}: cannot be a {type(value).__name__}")
