"""Build the plan of a run from the command line."""

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from memlite.client.credentials import read_login, read_tls
from memlite.client.tls import TlsSettings
from memlite.core.errors import ConfigError, StartError
from memlite.loadtest.clusters import clusters
from memlite.loadtest.defaults import PROXIED
from memlite.loadtest.dialects import Dialect
from memlite.loadtest.direct import DirectTarget
from memlite.loadtest.experiment import Plan
from memlite.loadtest.knee import KneeSearch
from memlite.loadtest.levels import Level
from memlite.loadtest.lite import refuse_unsupported_by_lite
from memlite.loadtest.options import PASSWORD_VARIABLE
from memlite.loadtest.places import HERE, Place
from memlite.loadtest.pool import default_workers
from memlite.loadtest.remote.machine import Access, RemoteMachine
from memlite.loadtest.resp import DIRECT, refuse_unsupported_by_direct
from memlite.loadtest.targets import (
    LaunchSettings,
    Target,
    largest_item,
    parse_address,
    parse_backend,
)
from memlite.loadtest.workload import Workload
from memlite.loadtest.workload_files import as_dict, digests, load_workload, validate

__all__ = ["machines_of", "new_folder", "plan_of", "prepare", "settings_of"]

# Options that affect neither the subject nor the method of the measurements.
_IRRELEVANT = frozenset(
    (
        *("machine", "machines", "mix_systems", "no_report", "out", "ports", "prices"),
        *("quiet", "remote_memlite", "ssh", "title", "usual_clients"),
    )
)
# Default bounds of the search for the knee.
_MAX_CLIENTS = 1024
_MAX_RATE = 1_000_000
# Connection limit of the servers that bench starts, unless there are more clients.
_CONNECTIONS = 8192


def plan_of(
    options: argparse.Namespace,
    arguments: Sequence[str],
    folder: Path,
    machines: Sequence[RemoteMachine] = (),
) -> Plan:
    """Return the plan of ``compare`` or ``run``.

    Args:
        options: from `memlite.loadtest.options.parse`.
        arguments: the command-line arguments, for the report.
        folder: folder for the data of servers.
        machines: the machines that the options name, if already connected.

    Raises:
        ConfigError: an option, or a combination of options, is invalid.
    """
    workload = _workload(options)
    if options.client == "pymemcache":
        from memlite.loadtest.clients.pymemcache import refuse_unsupported

        refuse_unsupported(workload, options.rate)
        if options.command == "compare" and options.cluster:
            _refuse_cluster_of_pymemcache(options)
    if options.dialect == Dialect.LITE:
        refuse_unsupported_by_lite(options, workload)
    targets = _targets(options, folder, machines)
    if any(target.dialect is Dialect.RESP for target in targets):
        refuse_unsupported_by_direct(options, workload)
    return Plan(
        title=options.title or _title(options, workload),
        workload=workload,
        targets=targets,
        levels=_levels(options, workload),
        workers=options.workers or default_workers(),
        seed=options.seed,
        command=["memlite", "bench", *arguments],
        client=options.client,
        verify=options.verify,
        timeout=options.timeout,
        machines=_machines(options),
        bursts=_with_bursts(options, workload),
        knee=_knee(options),
    )


def settings_of(plan: Plan, options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings common to all repetitions of a run, as JSON values.

    Args:
        plan: the plan of the run.
        options: the options from which the plan was built.
    """
    given = {name: str(value) for name, value in vars(options).items() if name not in _IRRELEVANT}
    return {
        "options": given,
        "workload": as_dict(plan.workload),
        "files": digests(plan.workload),
        "workers": plan.workers,
    }


def _refuse_cluster_of_pymemcache(options: argparse.Namespace) -> None:
    if set(options.paths) - {PROXIED}:
        raise ConfigError("bench: --client pymemcache requires --paths proxied")
    if max(options.proxies) > 1:
        raise ConfigError("bench: --client pymemcache supports only one proxy: use --proxies 1")


def new_folder() -> Path:
    """Return the path of a results folder for a run that starts now."""
    return Path("bench-results") / time.strftime("%Y-%m-%d-%H%M%S")


def prepare(folder: Path) -> None:
    """Create a folder and check that it is writable, before anything is measured.

    Raises:
        StartError: the folder cannot be created or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".memlite-bench"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise StartError(f"bench: --out {folder}: {error.strerror}") from None


def _title(options: argparse.Namespace, workload: Workload) -> str:
    if options.command == "run":
        targets = [options.address]
    elif options.cluster:
        targets = [f"clusters of {', '.join(map(str, options.cluster))} nodes", *options.target]
    else:
        targets = [*options.backends, *options.target]
    return f"{workload.name}: {', '.join(targets)}"


def _machines(options: argparse.Namespace) -> dict[str, int]:
    """Return the number of machines of each type.

    Raises:
        ConfigError: several machines are named, although all servers run on this machine.
    """
    total: dict[str, int] = {}
    for name, count in options.machine:
        total[name] = total.get(name, 0) + count
    here = options.command == "compare" and not options.hosts
    if here and sum(total.values()) > 1:
        raise ConfigError(
            "bench: --machine: all servers run on this machine: name only one, or start "
            "clusters on other machines with --hosts"
        )
    return total


def _with_bursts(options: argparse.Namespace, workload: Workload) -> bool:
    """Return whether to measure bursts of new clients as well."""
    compares_backends = options.command == "compare" and not options.cluster
    return compares_backends and workload.kind == "steady" and not options.find_knee


def _workload(options: argparse.Namespace) -> Workload:
    workload = load_workload(options.workload)
    changes: dict[str, dict[str, Any]] = {"keys": {}, "load": {}, "": {}}
    for name, value in vars(options).items():
        if value is None:
            continue
        table, dot, field = name.partition(".")
        if dot:
            changes[table][field] = value
        elif name in ("ttl", "trace", "mix"):
            changes[""][name] = value
    if "duration" in changes["load"]:
        changes["load"].setdefault("operations", 0)
    workload = replace(
        workload,
        keys=replace(workload.keys, **changes["keys"]),
        load=replace(workload.load, **changes["load"]),
        **changes[""],
    )
    # Blame the options, not the workload: without them it was valid.
    return validate(workload, "bench")


def _levels(options: argparse.Namespace, workload: Workload) -> list[Level]:
    rates = options.rate or [workload.load.rate]
    sizes = options.value_size or [0]
    clients = options.clients[:1] if options.find_knee else options.clients
    return [Level(number, rate, size) for size in sizes for number in clients for rate in rates]


def _knee(options: argparse.Namespace) -> KneeSearch | None:
    if not options.find_knee:
        if options.slo is not None or options.most is not None:
            raise ConfigError("bench: --slo and --most require --find-knee")
        return None
    max_load = options.most or (_MAX_RATE if options.rate else _MAX_CLIENTS)
    return KneeSearch(max_load, (options.slo or 0.0) * 1e6)


def machines_of(options: argparse.Namespace) -> list[RemoteMachine]:
    """Return the other machines that the options name, not yet connected.

    Args:
        options: the options of ``compare``.

    Raises:
        ConfigError: there are options for other machines, but no other machine is named.
    """
    for name in ("ssh", "remote_memlite", "ports"):
        if getattr(options, name) and not options.hosts:
            flag = name.replace("_", "-")
            raise ConfigError(f"bench: --{flag} requires --hosts")
    access = Access(
        tuple(options.ssh or Access().ssh),
        tuple(options.remote_memlite or Access().memlite),
        options.ports,
    )
    return [RemoteMachine(host, access) for host in options.hosts or ()]


def _places(options: argparse.Namespace, machines: Sequence[RemoteMachine]) -> Sequence[Place]:
    found = machines or machines_of(options)
    if found and not options.cluster:
        raise ConfigError("bench: --hosts requires --cluster")
    if found and options.data_dir:
        raise ConfigError("bench: --data-dir cannot be combined with --hosts: nodes run elsewhere")
    if found and "trace" in dict(options.proxy_option):
        raise ConfigError(
            "bench: --proxy-option trace cannot be combined with --hosts: proxies run elsewhere"
        )
    return found or (HERE,)


def _targets(
    options: argparse.Namespace, folder: Path, machines: Sequence[RemoteMachine]
) -> list[Target]:
    prefix = "bench: --"
    login = read_login(prefix, options.user, options.password_file, PASSWORD_VARIABLE, os.environ)
    files = (options.tls_ca_cert, options.tls_cert, options.tls_key)
    tls = read_tls(prefix, options.tls, TlsSettings(*files, verify=not options.tls_skip_verify))
    dialect = Dialect(options.dialect)
    if options.command == "run":
        return [parse_address(options.address, tls=tls, login=login, dialect=dialect)]
    places = _places(options, machines)
    settings = LaunchSettings(
        options.data_dir or folder,
        options.gcs_read_latency,
        options.gcs_write_latency,
        connections=max(_CONNECTIONS, *options.clients),
        item_size=largest_item(max(options.value_size or [0])),
        options=tuple(options.server_option),
    )
    if options.data_dir and not options.data_dir.is_dir():
        raise ConfigError(f"bench: --data-dir {options.data_dir} is not a directory")
    if options.cluster:
        targets = clusters(
            options.cluster,
            options.paths,
            options.proxies,
            options.backends,
            settings,
            options.proxy_option,
            places,
        )
    else:
        targets = [_backend(text, settings) for text in options.backends]
    targets += [
        parse_address(text, tls=tls, login=login, dialect=dialect) for text in options.target
    ]
    names = [target.name for target in targets]
    if len(set(names)) < len(names):
        raise ConfigError("bench: two targets have the same name; rename one: HOST:PORT=name")
    if not targets:
        raise ConfigError("bench: nothing to compare: --backends and --target name no server")
    return targets


def _backend(text: str, settings: LaunchSettings) -> Target:
    backend, _, name = text.partition("=")
    if backend == DIRECT:
        return DirectTarget(name or backend, settings.folder)
    return parse_backend(text, settings)
