"""A whole cluster on this machine, to try it out: ``memlite cluster try``."""

import contextlib
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from typing import NoReturn

from memlite.core import signals
from memlite.core.errors import StartError
from memlite.testing.process import ServerProcess, ServerStartError, server

__all__ = ["run_trial"]

_PROXY = (sys.executable, "-P", "-m", "memlite", "proxy")
_POLL_SECONDS = 0.1


def run_trial(count: int, port: int, arguments: Sequence[str]) -> None:
    """Run nodes and a proxy in front of them until a signal stops them.

    Args:
        count: the number of nodes, which take the ports after the proxy's.
        port: the proxy's TCP port.
        arguments: arguments for the nodes' command lines.

    Raises:
        StartError: a node or the proxy did not start, or the proxy has ended.
    """
    with contextlib.ExitStack() as stack, _until_stopped():
        nodes = {}
        for number in range(1, count + 1):
            name = f"node {number}"
            nodes[name] = _start(stack, name, server(*arguments, port=port + number))
        addresses = ",".join(map(_address, nodes.values()))
        in_front = server("--nodes", addresses, port=port, command=_PROXY)
        proxy = _start(stack, "the proxy", in_front)
        _say(_introduction(proxy, nodes, addresses))
        _watch(proxy, nodes)


def _start(
    stack: contextlib.ExitStack,
    name: str,
    process: contextlib.AbstractContextManager[ServerProcess],
) -> ServerProcess:
    """Start a process, which is stopped with the stack.

    Raises:
        StartError: it did not start; the text is one line.
    """
    try:
        return stack.enter_context(process)
    except ServerStartError as error:
        reason = (error.output.strip() or str(error)).splitlines()[-1]
        raise StartError(f"cluster: {name}: {reason.removeprefix('memlite: ')}") from None


def _introduction(proxy: ServerProcess, nodes: dict[str, ServerProcess], addresses: str) -> str:
    processes = {"proxy": proxy, **nodes}
    lines = [
        f"  {name:8} {_address(one):16} process {one.process.pid}"
        for name, one in processes.items()
    ]
    return "\n".join(
        [
            f"{len(nodes)} nodes with a proxy in front of them; press Ctrl+C to stop:",
            *lines,
            "In another terminal:",
            f"  memlite shell {_address(proxy)} set greeting hello",
            f"  memlite cluster route greeting --nodes {addresses}",
        ]
    )


def _watch(proxy: ServerProcess, nodes: dict[str, ServerProcess]) -> NoReturn:
    """Report nodes that end, for example because the user kills one to see the effect.

    Raises:
        StartError: the proxy has ended.
    """
    running = dict(nodes)
    while True:
        for name, node in list(running.items()):
            if (code := node.process.poll()) is not None:
                del running[name]
                _say(f"{name} ({_address(node)}) has exited: {_ending(code)}")
        if (code := proxy.process.poll()) is not None:
            raise StartError(f"cluster: the proxy has exited: {_ending(code)}")
        time.sleep(_POLL_SECONDS)


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _address(process: ServerProcess) -> str:
    return f"{process.host}:{process.port}"


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


@contextlib.contextmanager
def _until_stopped() -> Iterator[None]:
    """End the context without an error when a signal asks the process to stop."""

    def stop(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    numbers = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP"):  # not on Windows; the terminal was closed
        numbers.append(signal.SIGHUP)
    for number in numbers:
        signal.signal(number, stop)
    signals.unblock()
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        signals.block()  # until the process ends: another Ctrl-C must not leave servers behind
