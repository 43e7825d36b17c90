"""The meaning of the store's errors."""

import pytest

pytest.importorskip("redis", reason="needs memlite-cache[valkey]")

from redis.exceptions import NoScriptError, OutOfMemoryError, ReadOnlyError, ResponseError

from memlite.backends.valkey.commands import _met_by_script

# The prefix of errors of Redis 6.2.14, as redis-py raises them; later versions add none.
IN_A_SCRIPT = "Error running script (call to f_21169cdf): @user_script:9: @user_script: 9: -"


@pytest.mark.parametrize(
    ("text", "kind", "inner"),
    [
        ("OOM command not allowed when used memory > 'maxmemory'.", OutOfMemoryError, None),
        ("READONLY You can't write against a read only replica.", ReadOnlyError, None),
        ("NOREPLICAS Not enough good replicas to write.", ResponseError, "NOREPLICAS Not enough"),
        ("WRONGTYPE Operation against: -a key", ResponseError, "WRONGTYPE Operation against: -a"),
    ],
)
def test_errors_within_a_script(text: str, kind: type[Exception], inner: str | None) -> None:
    found = _met_by_script(ResponseError(IN_A_SCRIPT + text))
    assert type(found) is kind
    assert str(found).startswith(inner or text.partition(" ")[2])


@pytest.mark.parametrize(
    "error",
    [
        ResponseError("Error compiling script"),
        ResponseError("OOM command not allowed"),
        NoScriptError("No matching script. Please use EVAL."),
        ConnectionError("Error running script x: @user_script: 9: -OOM"),
    ],
)
def test_other_errors_are_unchanged(error: Exception) -> None:
    assert _met_by_script(error) is error
