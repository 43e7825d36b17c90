"""Checks that the store is usable before the server starts serving."""

import logging
import secrets
from collections.abc import Mapping

from redis.crc import key_slot
from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError

from memlite.backends.valkey.node import LostError, Node, NotSentError
from memlite.backends.valkey.options import (
    PASSWORD_VARIABLE,
    SENTINEL_PASSWORD_VARIABLE,
    Options,
)
from memlite.backends.valkey.scripts import REPLACE
from memlite.backends.valkey.topology import SLOTS, Topology
from memlite.core.errors import StartError

__all__ = ["check"]

_log = logging.getLogger("memlite")

# Parts of replies to a connection's greeting.
_NO_PASSWORD = ("NOAUTH", "Authentication required")
_WRONG_PASSWORD = ("WRONGPASS", "invalid username-password")
_NEEDS_NO_PASSWORD = "without any password configured"  # noqa: S105 - an error

# The first version with user names. Older ones are no longer maintained.
_LEAST_VERSION = (6, 0)


async def check(options: Options, topology: Topology) -> None:
    """Check that the store can be reached and used, and find out whether it is a cluster.

    Logs warnings about settings that make the store lose items.

    Args:
        options: the store, and how to reach it.
        topology: its servers.

    Raises:
        StartError: it cannot be used. The text says what to do.
    """
    try:
        if options.service:
            await _find_master(options, topology)
        info = await _info(options, topology.seed)
        _check_version(options, info)
        await _find_cluster(options, topology, info)
        await _try_commands(options, topology)
        _warn(options, info)
    except (NotSentError, LostError) as error:
        raise _unreachable(options, error) from None


async def _find_master(options: Options, topology: Topology) -> None:
    try:
        await topology.discover()
        try:
            await topology.seed.send(("PING",))
        except (NotSentError, LostError):
            await topology.discover()  # the Sentinel may not know of a failover yet
    except ResponseError as error:
        raise _cannot(options, f"cannot find the master: {error}") from None
    except (NotSentError, LostError) as error:
        text = str(error)
        if any(words in text for words in _NO_PASSWORD):
            text = (
                f"the Sentinel requires a password; set {SENTINEL_PASSWORD_VARIABLE}, or use "
                "?sentinel_password_file="
            )
        elif any(words in text for words in _WRONG_PASSWORD):
            text = "the Sentinel's password is wrong"
        elif _NEEDS_NO_PASSWORD in text:
            text = f"the Sentinel requires no password; unset {SENTINEL_PASSWORD_VARIABLE}"
        else:
            text = f"no answer from any Sentinel ({text}); check addresses and network"
        raise _cannot(options, text) from None


async def _info(options: Options, node: Node) -> Mapping[str, str]:
    """Return the server's INFO; empty if it is not permitted."""
    reply = await node.send(("INFO",))
    if isinstance(reply, bytes):
        lines = reply.decode(errors="replace").splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)
    if isinstance(reply, AuthenticationError) or "NOAUTH" in str(reply):
        raise _cannot(
            options, f"it requires a password; set {PASSWORD_VARIABLE}, or use ?password_file="
        )
    _log.info("%s: no permission for INFO; did not check the server's settings", options.shown)
    return {}


def _check_version(options: Options, info: Mapping[str, str]) -> None:
    shown = info.get("redis_version", "")
    numbers = shown.split(".")[:2]
    if len(numbers) == 2 and all(number.isdigit() for number in numbers):
        version = (int(numbers[0]), int(numbers[1]))
        if version < _LEAST_VERSION:
            least = ".".join(map(str, _LEAST_VERSION))
            raise _cannot(options, f"version {shown} is too old; {least} or newer is needed")


async def _find_cluster(options: Options, topology: Topology, info: Mapping[str, str]) -> None:
    if options.cluster is False or options.service:
        return
    mode = info.get("redis_mode", "")
    if mode and mode != "cluster" and options.cluster is None:
        return
    try:
        await topology.discover()
    except ResponseError as error:
        if options.cluster or mode == "cluster":
            raise _cannot(options, f"cannot query the cluster's slots ({error})") from None
        topology.clustered = False
        return
    except ValueError:
        raise _cannot(options, "invalid reply to CLUSTER SLOTS") from None
    if topology.covered < SLOTS:
        raise _cannot(
            options, f"the cluster is down: only {topology.covered} of {SLOTS} slots are served"
        )
    if options.database:
        raise _cannot(options, "a cluster supports only db 0")


async def _try_commands(options: Options, topology: Topology) -> None:
    """Run every required command on a key of its own."""
    name = f"{options.prefix}/check-{secrets.token_hex(8)}".encode()
    node = topology.node_of(name)
    assert node is not None  # noqa: S101 - all slots have a server
    for arguments in (
        ("SET", name, b"x", "PX", 10_000),
        ("GET", name),
        ("EVAL", REPLACE.text, 1, name, 0, -1, b"x", b"y", 10_000),
        ("EVALSHA", REPLACE.sha, 1, name, 0, -1, b"y"),
        ("DEL", name),
        ("SCAN", 0, "MATCH", name, "COUNT", 1),
        *([("WAIT", 0, 1)] if options.wait else []),
    ):
        reply = await node.send(arguments)
        if isinstance(reply, Exception):
            raise _refused(options, str(arguments[0]), key_slot(name), reply)


def _refused(options: Options, command: str, slot: int, error: Exception) -> StartError:
    if isinstance(error, AuthenticationError) or "NOAUTH" in str(error):
        return _cannot(
            options, f"it requires a password; set {PASSWORD_VARIABLE}, or use ?password_file="
        )
    if isinstance(error, NoPermissionError):
        return _not_permitted(options, command)
    return _cannot(options, f"{command} in slot {slot} failed: {type(error).__name__}: {error}")


def _not_permitted(options: Options, command: str) -> StartError:
    return _cannot(
        options,
        f"not permitted: {command}; the user needs "
        f"~{options.prefix}:* ~{options.prefix}/* +get +set +getrange +del +eval +evalsha "
        "+scan +ping +info +cluster|slots"
        f"{' +wait' if options.wait else ''}{' +role' if options.service else ''}",
    )


def _warn(options: Options, info: Mapping[str, str]) -> None:
    policy = info.get("maxmemory_policy", "noeviction")
    if info.get("maxmemory", "0") != "0" and policy != "noeviction":
        and_flushes = " and forget flushes" if policy.startswith("allkeys") else ""
        _log.warning(
            "%s: maxmemory-policy is %s: when memory is full, the server will lose acknowledged "
            "items%s; with noeviction, clients get errors instead",
            options.shown,
            policy,
            and_flushes,
        )
    replicas = int(info.get("connected_slaves", options.wait))
    if info.get("role") == "master" and replicas < options.wait:
        _log.warning(
            "%s: changes wait for %d replicas, but there are %d: until there are enough, changes "
            "fail",
            options.shown,
            options.wait,
            replicas,
        )
    if options.wait and info.get("aof_enabled") == "0":
        _log.warning(
            "%s: the append-only file is disabled: if the server restarts before a replica takes "
            "over, changes confirmed by replicas are lost",
            options.shown,
        )
    elif info.get("aof_enabled") == "0" and info.get("connected_slaves") == "0":
        _log.warning(
            "%s: no append-only file and no replica: when the server stops, changes since its "
            "last snapshot are lost",
            options.shown,
        )


def _unreachable(options: Options, error: Exception) -> StartError:
    text = str(error)
    if "permissions to run the 'role' command" in text:
        return _not_permitted(options, "ROLE")
    if options.tokens is not None and any(words in text for words in _WRONG_PASSWORD):
        return _cannot(
            options,
            "the access token was rejected; the service account needs "
            "roles/memorystore.dbConnectionUser",
        )
    if any(words in text for words in _WRONG_PASSWORD):
        user = options.user or "the default user"
        return _cannot(options, f"wrong password for {user}, or no such user")
    if _NEEDS_NO_PASSWORD in text:
        return _cannot(options, f"it requires no password; unset {PASSWORD_VARIABLE}")
    if any(words in text for words in _NO_PASSWORD):
        return _cannot(
            options, f"it requires a password; set {PASSWORD_VARIABLE}, or use ?password_file="
        )
    return _cannot(options, f"no answer ({text}); check address and network")


def _cannot(options: Options, text: str) -> StartError:
    return StartError(f"--backend: {options.shown}: {text}")
