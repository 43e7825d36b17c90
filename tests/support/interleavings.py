"""All orders of the steps of several actors on two model nodes, checked for linearizability.

An actor carries out operations one after another. Each is a generator that yields requests and
receives the answers; see `memlite.cluster.moving.answers.Steps`. A request may be carried out at
any time after it was made, so a schedule is an order of requests. In every reachable state, a
reader reads the key and must see a linearizable value: it does not matter which of the actors
continue afterwards, so any of them may be killed at any time.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

from memlite.cluster.moving.answers import Answer, Ask, Place, Steps, answer_of
from memlite.cluster.moving.steps import BusyKeyError
from memlite.core.errors import VersionConflict
from tests.support.model_node import ModelItem, ModelNode

__all__ = ["Operation", "Search", "Value", "ViolationError"]

Value = bytes | None
"""The value of the key; None if there is no item."""


@dataclass(frozen=True)
class Operation:
    """An operation of an actor.

    Attributes:
        name: for messages.
        steps: starts the operation; its result is the reply to a client.
        effect: returns the value after the operation, and the result. None if the operation is
            invisible to clients.
    """

    name: str
    steps: Callable[[], Steps[Any]]
    effect: Callable[[Value], tuple[Value, Hashable]] | None = None


_GAVE_UP = object()
"""Stands for the result of an operation that gave up."""


@dataclass(frozen=True)
class _Actor:
    """The progress of an actor.

    Attributes:
        operation: the number of its operation.
        answers: the answers that the operation has received.
        partial: the answers to its latest requests so far.
    """

    operation: int = 0
    answers: tuple[tuple[Answer, ...], ...] = ()
    partial: tuple[Answer, ...] = ()


_Items = frozenset[tuple[bytes, ModelItem]]
_Nodes = tuple[_Items, _Items]
_Config = tuple[Value, frozenset[tuple[int, Hashable]]]
"""A possible value, and the results of operations that have taken effect but not ended."""
_Part = TypeVar("_Part", bound=Hashable)


class _Numbered(Generic[_Part]):
    """Numbers the parts of states, so that the very many states are small tuples."""

    def __init__(self) -> None:
        self._numbers: dict[_Part, int] = {}
        self._parts: list[_Part] = []

    def number(self, part: _Part) -> int:
        known = self._numbers.get(part)
        if known is None:
            known = self._numbers[part] = len(self._parts)
            self._parts.append(part)
        return known

    def __getitem__(self, number: int) -> _Part:
        return self._parts[number]


class _State(NamedTuple):
    """A state: numbers for the nodes' content, each actor's progress and the configurations."""

    nodes: int
    actors: tuple[int, ...]
    configs: int


class _Step(NamedTuple):
    """The effect of one request of an actor on nodes with a certain content.

    Attributes:
        nodes: their content after the request.
        actor: the actor's progress after it.
        ended: the number of the operation that has ended, if it is visible to clients.
        label: for messages.
    """

    nodes: int
    actor: int
    ended: int | None
    label: "_Label"


class ViolationError(AssertionError):
    """A history is not linearizable; the text is the schedule."""


class Search:
    """Tries all orders.

    Args:
        scripts: the operations of each actor.
        prepare: puts items into the nodes, the source and the destination.
        initial: the value at the start.
        reader: generators that read the key and return the value.
        assigns: whether the nodes let clients assign cas uniques.

    Attributes:
        states: the number of states reached.
        ended: the number of those in which all actors have finished.
    """

    def __init__(
        self,
        scripts: Sequence[Sequence[Operation]],
        prepare: Callable[[ModelNode, ModelNode], None],
        initial: Value,
        reader: Sequence[Callable[[], Steps[Value]]],
        *,
        assigns: bool = True,
    ) -> None:
        self._scripts = scripts
        self._reader = reader
        self._assigns = assigns
        self.states = self.ended = 0
        # Results for parts that many states share.
        self._nodes: _Numbered[_Nodes] = _Numbered()
        self._actors: _Numbered[_Actor] = _Numbered()
        self._configs: _Numbered[frozenset[_Config]] = _Numbered()
        self._seen: dict[int, list[Value]] = {}
        self._progressed: dict[tuple[Any, ...], tuple[tuple[Ask, ...], Any]] = {}
        self._steps: dict[tuple[int, int, int], _Step | None] = {}
        self._reached: dict[tuple[int, tuple[int, ...]], set[_Config]] = {}
        self._possible: dict[tuple[int, tuple[int, ...]], set[Value]] = {}
        self._after: dict[tuple[int, tuple[int, ...], int, Hashable], int] = {}
        nodes = ModelNode(assigns=assigns, first=500), ModelNode(assigns=assigns)
        prepare(*nodes)
        configs: frozenset[_Config] = frozenset([(initial, frozenset())])
        self._start = _State(
            self._nodes.number((_frozen(nodes[0]), _frozen(nodes[1]))),
            tuple(self._actors.number(_Actor()) for _ in scripts),
            self._configs.number(configs),
        )

    def run(self) -> None:
        """Try all orders.

        Raises:
            ViolationError: an order is not linearizable.
        """
        seen = {self._start}
        stack: list[tuple[_State, _Path]] = [(self._start, ())]
        while stack:
            state, path = stack.pop()
            self.states += 1
            self._probe(state, path)
            moved = False
            for index in range(len(self._scripts)):
                step = self._step(state, index)
                if step is None:
                    continue
                moved = True
                following = self._following(state, index, step, path)
                if following not in seen:
                    seen.add(following)
                    stack.append((following, (path, step.label)))
            self.ended += not moved

    def _following(self, state: _State, index: int, step: _Step, path: "_Path") -> _State:
        """Return the state after a step of an actor."""
        configs = state.configs
        if step.ended is not None:
            result = step.label[-1]
            configs = self._ended(state, step.ended, result)
            if not self._configs[configs]:
                raise _violation((path, step.label[:-1]), f"result {result!r}")
        actors = (*state.actors[:index], step.actor, *state.actors[index + 1 :])
        return _State(step.nodes, actors, configs)

    def _step(self, state: _State, index: int) -> _Step | None:
        """Return the effect of an actor's next request, if it has one."""
        key = state.nodes, index, state.actors[index]
        if key not in self._steps:
            self._steps[key] = self._carry_out(*key)
        return self._steps[key]

    def _carry_out(self, nodes_before: int, index: int, actor_before: int) -> _Step | None:
        actor, script = self._actors[actor_before], self._scripts[index]
        if actor.operation >= len(script):
            return None
        operation = script[actor.operation]
        asks, _ = self._progress(index, actor)
        ask = asks[len(actor.partial)]
        nodes = self._thawed(self._nodes[nodes_before])
        for node in nodes:
            # A unique that is independent of other actors, so that fewer states differ.
            round_ = 10 * len(actor.answers) + len(actor.partial)
            node.following = 1000 * (1 + _number(index, actor.operation)) + round_
        reply = nodes[ask.place is Place.DESTINATION].handle(ask.request)
        label: _Label = index, operation.name, ask, reply
        actor = replace(actor, partial=(*actor.partial, answer_of(reply)))
        number = None
        if len(actor.partial) == len(asks):
            actor = _Actor(actor.operation, (*actor.answers, actor.partial))
            more, result = self._progress(index, actor)
            if not more:
                ended = result is not _GAVE_UP  # otherwise no client got a reply
                if ended and operation.effect is not None:
                    number = _number(index, actor.operation)
                    label = *label, result
                actor = _Actor(actor.operation + 1 if ended else len(script))
        after = self._nodes.number((_frozen(nodes[0]), _frozen(nodes[1])))
        return _Step(after, self._actors.number(actor), number, label)

    def _progress(self, index: int, actor: _Actor) -> tuple[tuple[Ask, ...], Any]:
        """Return an actor's next requests, none at the end of its operation, and the result."""
        key = index, actor.operation, actor.answers
        known = self._progressed.get(key)
        if known is None:
            steps = self._scripts[index][actor.operation].steps()
            result: Any = None
            try:
                asks = next(steps)
                for answer in actor.answers:
                    asks = steps.send(answer)
            except StopIteration as stop:
                asks, result = (), stop.value
            except (BusyKeyError, VersionConflict):
                asks, result = (), _GAVE_UP
            known = self._progressed[key] = asks, result
        return known

    # Linearizability

    def _operations(self, state: _State) -> tuple[int, ...]:
        return tuple([self._actors[actor].operation for actor in state.actors])

    def _ended(self, state: _State, number: int, result: Hashable) -> int:
        """Return the configurations possible after an operation has ended with a result."""
        key = state.configs, self._operations(state), number, result
        known = self._after.get(key)
        if known is None:
            known = self._after[key] = self._configs.number(
                frozenset(
                    (value, effects - {(number, result)})
                    for value, effects in self._closure(state)
                    if (number, result) in effects
                )
            )
        return known

    def _closure(self, state: _State) -> set[_Config]:
        """Return the configurations possible if any operations in progress take effect now."""
        at = self._operations(state)
        key = state.configs, at
        known = self._reached.get(key)
        if known is not None:
            return known
        open_ = [
            (_number(index, operation), script[operation])
            for index, (operation, script) in enumerate(zip(at, self._scripts, strict=True))
            if operation < len(script) and script[operation].effect is not None
        ]
        reached = self._reached[key] = set(self._configs[state.configs])
        stack = list(reached)
        while stack:
            value, effects = stack.pop()
            taken = {number for number, _ in effects}
            for number, operation in open_:
                if number in taken or operation.effect is None:
                    continue
                after, result = operation.effect(value)
                config = after, effects | {(number, result)}
                if config not in reached:
                    reached.add(config)
                    stack.append(config)
        return reached

    def _probe(self, state: _State, path: "_Path") -> None:
        """Let readers read without interference, and check the values they see."""
        key = state.configs, self._operations(state)
        possible = self._possible.get(key)
        if possible is None:
            possible = self._possible[key] = {value for value, _ in self._closure(state)}
        values = self._seen.get(state.nodes)
        if values is None:
            values = self._seen[state.nodes] = [
                self._read(reader, self._nodes[state.nodes]) for reader in self._reader
            ]
        for value in values:
            if value not in possible:
                raise _violation(path, f"a reader sees {value!r}, not one of {possible!r}")

    def _read(self, reader: Callable[[], Steps[Value]], at: _Nodes) -> Value:
        nodes = self._thawed(at)
        steps = reader()
        try:
            asks = next(steps)
            while True:
                asks = steps.send(
                    tuple(
                        answer_of(nodes[ask.place is Place.DESTINATION].handle(ask.request))
                        for ask in asks
                    )
                )
        except StopIteration as stop:
            value: Value = stop.value
            return value

    def _thawed(self, nodes: _Nodes) -> tuple[ModelNode, ModelNode]:
        source, destination = (ModelNode(assigns=self._assigns) for _ in nodes)
        source.items, destination.items = dict(nodes[0]), dict(nodes[1])
        return source, destination


def _frozen(node: ModelNode) -> _Items:
    return frozenset(node.items.items())


def _number(actor: int, operation: int) -> int:
    return actor * 100 + operation


_Label = tuple[Any, ...]
"""An actor's number, its operation's name, a request, the reply, and possibly the result."""
_Path = tuple[()] | tuple["_Path", _Label]
"""The path before a step, and the step."""


def _violation(path: _Path, reason: str) -> ViolationError:
    lines = [reason]
    while path:
        path, (index, name, ask, reply, *result) = path
        line = f"{index}:{name}: {ask.place.name.lower()} {ask.request[:60]!r} -> {reply[:60]!r}"
        lines.append(f"{line} = {result[0]!r}" if result else line)
    return ViolationError("\n".join(reversed(lines)))
