"""The effect of memcached's commands on one item, and their replies."""

from typing import Final, NamedTuple

from tests.support.linearizability.history import Operation, Result

__all__ = ["ABSENT", "State", "apply"]


class State(NamedTuple):
    """The state of a key.

    Attributes:
        value: the value of the item; None if there is no item.
        unique: its cas unique; None as long as no client has seen it.
    """

    value: bytes | None
    unique: int | None = None

    def __str__(self) -> str:
        if self.value is None:
            return "absent"
        unique = "" if self.unique is None else f", unique {self.unique}"
        return f"{self.value[-60:].decode(errors='backslashreplace')}{unique}"


ABSENT: Final = State(None)


def apply(state: State, operation: Operation) -> State | None:
    """Return the state after an operation; None if the operation cannot have its result then.

    Storing an item, and touching it, gives it a cas unique that no earlier state had. A client
    that compares a unique has seen it before, so a state with an unseen unique does not match.
    """
    expected, after = _carry_out(state, operation)
    result = operation.result
    if result is None:
        return after
    if result.word != expected.word or result.value != expected.value:
        return None
    if result.unique is not None:
        if expected.unique not in (None, result.unique):
            return None
        return after._replace(unique=result.unique)
    return after


def _carry_out(state: State, operation: Operation) -> tuple[Result, State]:
    value, old = operation.value, state.value
    there = old is not None
    match operation.name:
        case "get" | "gets":
            return Result("HIT", old, state.unique) if there else _MISS, state
        case "gat":
            return (Result("HIT", old), State(old)) if there else (_MISS, state)
        case "touch":
            return (_TOUCHED, State(old)) if there else (_NOT_FOUND, state)
        case "set":
            return _STORED, State(value)
        case "add":
            return (_NOT_STORED, state) if there else (_STORED, State(value))
        case "replace":
            return (_STORED, State(value)) if there else (_NOT_STORED, state)
        case "append" if old is not None:
            return _STORED, State(old + value)
        case "prepend" if old is not None:
            return _STORED, State(value + old)
        case "append" | "prepend":
            return _NOT_STORED, state
        case "cas" if there:
            same = state.unique == operation.unique
            return (_STORED, State(value)) if same else (_EXISTS, state)
        case "incr" if old is not None:
            if not old.isdigit():
                return _NO_NUMBER, state
            number = b"%d" % (int(old) + int(value))
            return Result("NUMBER", number), State(number)
        case "delete":
            return (_DELETED, ABSENT) if there else (_NOT_FOUND, state)
        case "flush_all":
            return _OK, ABSENT
        case "cas" | "incr":
            return _NOT_FOUND, state
    raise ValueError(operation.name)


_DELETED: Final = Result("DELETED")
_EXISTS: Final = Result("EXISTS")
_MISS: Final = Result("MISS")
_NOT_FOUND: Final = Result("NOT_FOUND")
_NOT_STORED: Final = Result("NOT_STORED")
_NO_NUMBER: Final = Result("CLIENT_ERROR")
_OK: Final = Result("OK")
_STORED: Final = Result("STORED")
_TOUCHED: Final = Result("TOUCHED")
