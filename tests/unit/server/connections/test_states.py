"""The states of a connection: a test for each transition."""

import pytest

from memlite.server.connections.states import TRANSITIONS, Event, State

EXPECTED = {
    State.SERVING: {
        Event.SHARE_USED: State.YIELDED,
        Event.FULL: State.BLOCKED,
        Event.RESUMED: State.SERVING,
        Event.ATTACHED: State.STREAMING,
        Event.WATCHED: State.WATCHING,
        Event.CLOSED_LATER: State.CLOSING,
        Event.LOST: State.CLOSED,
    },
    State.YIELDED: {
        Event.TURN: State.BLOCKED,
        Event.FULL: State.YIELDED,
        Event.ATTACHED: State.STREAMING,
        Event.WATCHED: State.WATCHING,
        Event.CLOSED_LATER: State.CLOSING,
        Event.LOST: State.CLOSED,
    },
    State.BLOCKED: {
        Event.RESUMED: State.SERVING,
        Event.FULL: State.BLOCKED,
        Event.ATTACHED: State.STREAMING,
        Event.WATCHED: State.WATCHING,
        Event.CLOSED_LATER: State.CLOSING,
        Event.LOST: State.CLOSED,
    },
    State.STREAMING: {
        Event.DETACHED: State.BLOCKED,
        Event.FULL: State.STREAMING,
        Event.CLOSED_LATER: State.CLOSING,
        Event.LOST: State.CLOSED,
    },
    State.WATCHING: {
        Event.FULL: State.WATCHING,
        Event.CLOSED_LATER: State.CLOSING,
        Event.LOST: State.CLOSED,
    },
    State.CLOSING: {
        Event.FULL: State.CLOSING,
        Event.CLOSED_LATER: State.CLOSING,
        Event.LOST: State.CLOSED,
    },
    State.CLOSED: dict.fromkeys(Event, State.CLOSED),
}


@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("state", State)
def test_transitions(state, event):
    assert TRANSITIONS.get((state, event)) is EXPECTED[state].get(event)
