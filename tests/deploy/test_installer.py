"""The installer's packages: it installs the locked packages, and nothing else.

It runs with its paths moved under a folder, against the test's own bucket and metadata server. pip
is real, and finds its packages in a folder. Debian's packages and systemd are stand-ins;
scripts/systemd/try-startup uses the real ones.
"""

import hashlib
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pip
import pytest

from tests.deploy.module import SCRIPTS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STANDINS = {
    "id": "echo 0",
    "apt-get": "exit 0",
    "dpkg-query": "printf 'ii '",
    # Environments get the pip of this one, because installing pip takes seconds.
    "python3": f"""\
[ "$1 $2" = "-m venv" ] || exec {sys.executable} "$@"
{sys.executable} -m venv --without-pip "$3"
ln -s {Path(pip.__file__).parent} "$3"/lib/python*/site-packages/
""",
}


def wheel(folder: Path, name: str, *, needs: str = "", script: str = "") -> Path:
    """Create a wheel with one module, and a command of the same name if there is a script."""
    module = name.replace("-", "_")
    info = f"{module}-1.0.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nProvides-Extra: gcs\n"
    files = {
        f"{module}.py": f"def main():\n    {script or 'pass'}\n",
        f"{info}/METADATA": metadata + (f"Requires-Dist: {needs}\n" if needs else ""),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\nmemlite = {module}:main\n"
        if script
        else "",
    }
    path = folder / f"{module}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{file},,\n" for file in files))
    return path


def hashed(file: Path) -> str:
    return f" --hash=sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"


class Cloud(ThreadingHTTPServer):
    """A bucket, and a metadata server that issues tokens for it."""

    daemon_threads = True

    def __init__(self, objects: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects = objects
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Cloud

    def do_GET(self) -> None:
        path = unquote(self.path.partition("?")[0])
        if path.endswith("/service-accounts/default/token"):
            self.answer(b'{"access_token": "good"}')
        elif self.headers["Authorization"] != "Bearer good":
            self.send_error(401)
        else:
            self.answer((self.server.objects / path.rpartition("/")[2]).read_bytes())

    def answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Machine:
    """A folder that stands for a machine's root, with packages for pip and a bucket."""

    def __init__(self, root: Path, cloud: Cloud) -> None:
        self.root = root
        self.packages = cloud.objects
        self.cloud = cloud
        self.memlite = wheel(
            self.packages, "memlite-cache", needs="locked==1.0", script="print('memlite 1.0')"
        )
        self.locked = wheel(self.packages, "locked")
        self.requirements = self.packages / "server.txt"
        self.requirements.write_text(f"locked==1.0{hashed(self.locked)}\n")
        (root / "bin").mkdir()
        (root / "usr/local/bin").mkdir(parents=True)
        for name, body in STANDINS.items():
            (root / "bin" / name).write_text(f"#!/bin/sh\n{body}\n")
            (root / "bin" / name).chmod(0o755)
        text = (SCRIPTS / "systemd" / "install-systemd.sh").read_text()
        for place in ("/opt/memlite", "/usr/local/bin"):
            text = text.replace(place, f"{root}{place}")
        self.installer = root / "install-systemd.sh"
        self.installer.write_text(text)

    def install(self, package: str, requirements: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                "bash",
                self.installer,
                "--no-service",
                "--package",
                package,
                "--requirements",
                requirements,
            ],
            env={
                "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
                "PIP_NO_INDEX": "1",
                "PIP_FIND_LINKS": str(self.packages),
                "PIP_CONFIG_FILE": os.devnull,
                "METADATA_URL": self.cloud.url,
                "STORAGE_URL": self.cloud.url,
                "no_proxy": "127.0.0.1",
            },
            capture_output=True,
            text=True,
        )

    def installed(self) -> str | None:
        program = self.root / "opt/memlite/current/bin/memlite"
        if not program.exists():
            return None
        return subprocess.run([program], capture_output=True, text=True, check=True).stdout


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    objects = tmp_path / "objects"
    objects.mkdir()
    with Cloud(objects) as cloud:
        thread = threading.Thread(target=cloud.serve_forever)
        thread.start()
        yield Machine(tmp_path, cloud)
        cloud.shutdown()
        thread.join()


def in_bucket(file: Path) -> str:
    return f"gs://items/install/x/{file.name}"


def test_a_wheel_and_its_locked_dependencies_are_installed_from_a_bucket(machine: Machine) -> None:
    package = f"{in_bucket(machine.memlite)}[gcs]{hashed(machine.memlite)}"
    requirements = in_bucket(machine.requirements) + hashed(machine.requirements)
    done = machine.install(package, requirements)
    assert done.returncode == 0, done.stderr
    assert machine.installed() == "memlite 1.0\n"
    # The same arguments change nothing; other dependencies lead to another installation.
    before = (machine.root / "opt/memlite/current").readlink()
    assert machine.install(package, requirements).returncode == 0
    assert (machine.root / "opt/memlite/current").readlink() == before
    machine.requirements.write_text(machine.requirements.read_text() + "# newer\n")
    done = machine.install(package, in_bucket(machine.requirements) + hashed(machine.requirements))
    assert done.returncode == 0, done.stderr
    assert (machine.root / "opt/memlite/current").readlink() != before


def test_a_version_with_a_hash_is_installed(machine: Machine) -> None:
    package = f"memlite-cache[gcs]==1.0{hashed(machine.memlite)}"
    done = machine.install(package, str(machine.requirements))
    assert done.returncode == 0, done.stderr
    assert machine.installed() == "memlite 1.0\n"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ("wheel", "memlite_cache-1.0-py3-none-any.whl does not have the hash"),
        pytest.param("version", "THESE PACKAGES DO NOT MATCH THE HASHES", marks=pytest.mark.slow),
        ("requirements", "server.txt does not have the hash"),
        pytest.param(
            "dependency", "THESE PACKAGES DO NOT MATCH THE HASHES", marks=pytest.mark.slow
        ),
        ("unlocked dependency", "requires locked, which is not installed"),
    ],
)
def test_unlocked_packages_are_not_installed(machine: Machine, changed: str, said: str) -> None:
    package = f"{in_bucket(machine.memlite)}[gcs]{hashed(machine.memlite)}"
    if changed == "version":
        package = f"memlite-cache[gcs]==1.0{hashed(machine.memlite)}"
    requirements = in_bucket(machine.requirements) + hashed(machine.requirements)
    match changed:
        case "wheel" | "version":
            wheel(machine.packages, "memlite-cache", script="print('evil')")
        case "requirements":
            machine.requirements.write_text("evil\n")
        case "dependency":
            wheel(machine.packages, "locked", script="print('evil')")
        case "unlocked dependency":
            machine.requirements.write_text("")
            requirements = str(machine.requirements)
    done = machine.install(package, requirements)
    assert done.returncode != 0
    assert said in done.stdout + done.stderr
    assert machine.installed() is None
    assert list((machine.root / "opt/memlite/releases").iterdir()) == []


def test_the_token_is_not_among_the_arguments() -> None:
    text = (SCRIPTS / "systemd" / "install-systemd.sh").read_text()
    assert "-H @-" in text
    assert '-H "Authorization' not in text
