from typing import Final, TypeVar

__all__ = ["VERSION", "gather", "interleave", "items", "split_gets"]

VERSION: Final = 1

_Owner = TypeVar("_Owner")

def split_gets(data: bytes, /) -> tuple[list[bytes], int]: ...
def items(keys: list[bytes], reply: bytes, position: int, /) -> tuple[list[bytes], int]: ...
def gather(owners: list[_Owner], values: list[bytes], /) -> dict[_Owner, list[bytes]]: ...
def interleave(
    owners: list[_Owner], parts: dict[_Owner, list[bytes]], each: bytes, last: bytes, /
) -> bytes: ...
