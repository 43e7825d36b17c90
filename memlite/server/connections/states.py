"""The state machine of a connection: states, events and transitions.

Two conditions are tracked separately because they can hold in several states: whether the peer is
reading its replies (`Connection.writable`), and whether it has half-closed the connection.
"""

import enum
from collections.abc import Mapping

__all__ = ["TRANSITIONS", "Event", "State"]


class State(enum.Enum):
    """How a connection handles input."""

    SERVING = enum.auto()
    """Serves input at once."""
    YIELDED = enum.auto()
    """Keeps input until the connection's next turn, which is scheduled."""
    BLOCKED = enum.auto()
    """Keeps input until the peer reads replies or the executor has room."""
    STREAMING = enum.auto()
    """Keeps input until the stream that owns the connection returns it."""
    WATCHING = enum.auto()
    """Discards input: the stream that owns the connection never ends."""
    CLOSING = enum.auto()
    """Keeps input; the connection closes once its replies have been sent."""
    CLOSED = enum.auto()
    """Receives no more input."""


class Event(enum.Enum):
    """An event that causes a state transition."""

    SHARE_USED = enum.auto()
    """A read held more commands than one turn may carry out, or a login attempt must wait."""
    TURN = enum.auto()
    """The scheduled turn has come."""
    FULL = enum.auto()
    """The peer has stopped reading replies, or the executor accepts no more commands."""
    RESUMED = enum.auto()
    """Neither is the case any longer, or a turn starts."""
    ATTACHED = enum.auto()
    """A stream has taken over the connection."""
    WATCHED = enum.auto()
    """An endless stream has taken over the connection."""
    DETACHED = enum.auto()
    """The stream has returned the connection."""
    CLOSED_LATER = enum.auto()
    """The connection is to be closed once its replies have been sent."""
    LOST = enum.auto()
    """The transport is closed."""


def _table() -> dict[tuple[State, Event], State]:
    open_states = [state for state in State if state is not State.CLOSED]
    table = {
        (State.SERVING, Event.SHARE_USED): State.YIELDED,
        (State.SERVING, Event.FULL): State.BLOCKED,
        (State.SERVING, Event.RESUMED): State.SERVING,
        (State.YIELDED, Event.FULL): State.YIELDED,  # checked again at its turn
        (State.YIELDED, Event.TURN): State.BLOCKED,
        (State.BLOCKED, Event.FULL): State.BLOCKED,
        (State.BLOCKED, Event.RESUMED): State.SERVING,
        (State.STREAMING, Event.FULL): State.STREAMING,
        (State.STREAMING, Event.DETACHED): State.BLOCKED,
        (State.WATCHING, Event.FULL): State.WATCHING,
        (State.CLOSING, Event.FULL): State.CLOSING,
    }
    for state in (State.SERVING, State.BLOCKED, State.YIELDED):
        table[state, Event.ATTACHED] = State.STREAMING
        table[state, Event.WATCHED] = State.WATCHING
    for state in open_states:
        table[state, Event.CLOSED_LATER] = State.CLOSING
        table[state, Event.LOST] = State.CLOSED
    for event in Event:  # a delayed command may run after its client has disconnected
        table[State.CLOSED, event] = State.CLOSED
    return table


TRANSITIONS: Mapping[tuple[State, Event], State] = _table()
"""The state after each event; pairs that are missing cannot occur."""
