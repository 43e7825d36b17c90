"""Commands that arrive in one read have the same results as one at a time, however it is cut."""

import random

import pytest

from tests.unit.server.execution.test_shortcuts import Client, both, command, with_unique

# Left to the parser by a run: values with line endings, lines with other endings.
ODD = (
    b"set a 0 0 4\r\n\r\n\r\n\r\n", b"set a 0 0 2\r\n\r\n\r\n", b"append a 0 0 2\r\n\r\n\r\n",
    b"set a 0 0 1\r\n\n\r\n", b"set a 0 0 1\nx\r\n", b"get a\n", b"get a\nget b\r\n",
    b"get a\r\r\n", b"get a\rget b\r\n", b"get\r\n", b"ge\r\n", b"get \r\n", b"get  a\r\n",
    b"get a b \r\n", b"g\r\n", b"\r\n", b"\r\n\r\n", b"mn\r\n", b"add a 0 0 3\r\nxx\r\n",
    b"add a 0 0 1\r\nxx\r\n", b"delete a noreply\r\n", b"touch a 5 noreply\r\n",
    b"decr 1 1 noreply\r\n", b"incr 1 1 noreply noreply\r\n", b"delete noreply\r\n",
    b"delete a  noreply\r\n", b"incr a x noreply\r\n", b"touch  noreply\r\n",
    b"incr a  noreply\r\n", b"delete a noreplynoreply\r\n", b"set a\nb 0 0 1\r\nx\r\n",
    b"delete a\nincr 1 1\r\n", b"set a 0 0 0\r\n\r\n", b"xxt b\r\n",
    b"set get 0 0 9\r\nget a\r\nge\r\n", b"replace a 0 0 5 noreply\r\nabcde\r\n", b"gats 0 b\r\n",
    b"set a 0 0 4097\r\n" + (b"v" * 1022 + b"\r\n") * 4 + b"v\r\n",
    b"prepend a 0 0 4096\r\n" + b"\r\n" * 2048 + b"\r\n",
    b"set a 0 0 20000\r\n" + b"w\r\n" * 6666 + b"ww\r\n", b"gets a\r\n", b"gats 0 a\r\n",
    b"get a b\r\n", b"get " + b"k" * 251 + b"\r\n", b"get " + b"k " * 3000 + b"a\r\n",
    b"set " + b"k" * 251 + b" 0 0 1\r\nx\r\n", b"cas a 0 0 1 99999 noreply\r\nx\r\n",
)  # fmt: skip


def reads(data, choice):
    """Cut the input anywhere, a few times."""
    cuts = sorted(choice.randrange(len(data) + 1) for _ in range(choice.choice((0, 0, 1, 3))))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True) if a < b]


@both
@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_commands_together(seed, sampled, native):
    choice = random.Random(seed)
    together = Client(shortcuts=True, native=native)
    apart = Client(shortcuts=False, sampled=sampled)
    for _ in range(60):
        commands = [
            choice.choice(ODD) if choice.random() < 0.15 else command(choice)
            for _ in range(choice.choice((2, 5, 30)))
        ]
        commands = [one for one in commands if one != b"TICK"]
        expected = b"".join(map(apart.send, [with_unique(one, apart) for one in commands]))
        data = b"".join([with_unique(one, together) for one in commands])
        replies = b"".join(map(together.send, reads(data, choice)))
        assert together.without_uniques(replies) == expected, commands
        states = together.state, apart.state
        for _, counted in states:
            del counted["conn_yields"]
        assert states[0] == states[1], commands
        # An odd command may have left half a command.
        for one in (together, apart):
            one.send(b"\r\n" * 3)


@pytest.mark.parametrize("gets", [19, 20, 21, 400])
def test_a_turn_ends_after_as_many_gets_as_it_may_have(gets):
    client = Client(shortcuts=True)
    client.send(b"set a 0 0 1\r\nx\r\n")
    client.connection.data_received(b"get a\r\n" * gets + b"get b\r\n")
    first = b"".join(client.transport.written)
    turn = min(gets, 20)
    assert first == b"VALUE a 0 1\r\nx\r\nEND\r\n" * turn + (b"END\r\n" if gets < 20 else b"")
    assert client.server.counters.conn_yields == (gets >= 20)
    client.server.scheduler.loop.run()
    assert b"".join(client.transport.written).endswith(b"x\r\nEND\r\nEND\r\n")


@pytest.mark.parametrize("sets", [19, 20, 21, 400])
def test_a_turn_ends_after_as_many_sets_as_it_may_have(sets):
    client = Client(shortcuts=True)
    client.connection.data_received(b"set a 0 0 1\r\nx\r\n" * sets + b"get b\r\n")
    turn = min(sets, 20)
    first = b"".join(client.transport.written)
    assert first == b"STORED\r\n" * turn + (b"END\r\n" if sets < 20 else b"")
    client.server.scheduler.loop.run()
    assert b"".join(client.transport.written) == b"STORED\r\n" * sets + b"END\r\n"


@pytest.mark.parametrize(
    "value", [b"v" * 100, b"\r\n" * 50, b"get a\r\nget b\r\nget", b"\n" * 5000]
)
@pytest.mark.parametrize("gets", [1, 2, 9, 300])
def test_gets_between_other_commands_are_answered_in_order(gets, value):
    """Input after the gets was split into lines with them; parsing resumes right after them."""
    together, apart = Client(shortcuts=True), Client(shortcuts=False)
    storing = b"set a 0 0 %d\r\n%b\r\n" % (len(value), value)
    others = (storing, b"delete b\r\n", b"set b 0 0 1\r\nx\r\n", b"touch a 0\r\n", storing)
    commands = [one for other in others for one in (other, *[b"get a\r\n", b"get b\r\n"] * gets)]
    data = b"".join(commands)
    expected = b"".join(map(apart.send, commands))
    assert together.send(data) == expected
    assert together.send(data[len(storing) :] + storing) == b"".join(
        map(apart.send, [*commands[1:], storing])
    )
