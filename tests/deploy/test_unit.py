"""The systemd unit, its settings and the scripts, checked by systemd-analyze and shellcheck."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from memlite.cli.main import main
from memlite.config import OPTIONS

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "scripts" / "systemd" / "memlite.service"
SETTINGS = ROOT / "scripts" / "systemd" / "memlite.env"
INSTALLER = (ROOT / "scripts" / "systemd" / "install-systemd.sh").read_text()
SCRIPTS = [
    file
    for folder in ("scripts", ".ci")
    for file in sorted((ROOT / folder).rglob("*"))
    if file.suffix == ".sh" or (file.is_file() and re.match(rb"#!.*\bbash\b", file.read_bytes()))
]

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None,
    reason="systemd-analyze is not installed (apt install systemd)",
)


def unit_values(name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)


def settings() -> dict[str, str]:
    """Return the settings, including those that are commented out."""
    return dict(re.findall(r"^#? ?(MEMLITE_\w+)=(.*)$", SETTINGS.read_text(), re.MULTILINE))


@needs_systemd
def test_systemd_finds_nothing_wrong(tmp_path: Path) -> None:
    # systemd requires the program to exist; everything else is as installed.
    text = UNIT.read_text().replace(unit_values("ExecStart")[0], "/bin/true")
    (tmp_path / UNIT.name).write_text(text)
    result = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / UNIT.name)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")


@needs_systemd
def test_exposure_score() -> None:
    result = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=30", str(UNIT)],
        capture_output=True,
        text=True,
        check=False,
    )
    if "unrecognized option" in result.stderr:
        pytest.skip("needs systemd-analyze 250 or newer")
    assert result.returncode == 0, result.stdout
    found = re.search(r"Overall exposure level for memlite.service: ([0-9.]+)", result.stdout)
    assert found
    assert float(found[1]) <= 3


def test_settings_are_options_of_memlite() -> None:
    assert set(settings()) <= {option.variable for option in OPTIONS}
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("MEMLITE_")
    }
    result = subprocess.run(
        [sys.executable, "-m", "memlite", "--print-config"],
        env={**environment, **settings()},
        capture_output=True,
        text=True,
        check=True,
    )
    for name in settings():
        assert f"# environment {name}\n" in result.stdout


def test_settings_in_the_documentation_are_options_of_memlite() -> None:
    page = (ROOT / "docs" / "how-to" / "run-as-a-service.md").read_text()
    names = set(re.findall(r"MEMLITE_\w+", page))
    assert len(names) > 5
    assert names <= {option.variable for option in OPTIONS}


def test_the_unit_and_the_installer_agree() -> None:
    (program,), (file,) = unit_values("ExecStart"), unit_values("EnvironmentFile")
    assert program == "/opt/memlite/current/bin/memlite"
    assert "\ncurrent=/opt/memlite/current\n" in INSTALLER
    assert f"\nsettings={file}\n" in INSTALLER
    assert unit_values("User") == unit_values("Group") == ["memlite"]
    assert "useradd --system --user-group --home-dir /var/lib/memlite" in INSTALLER
    assert unit_values("StateDirectory") == ["memlite"]
    assert unit_values("WorkingDirectory") == ["/var/lib/memlite"]


def test_invalid_settings_do_not_cause_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMLITE_MEMORY_LIMIT", "much")
    assert unit_values("RestartPreventExitStatus") == [str(main([]))]


def test_the_file_limit_is_large_enough_for_connections() -> None:
    # More connections would require raising the limit, which the unit does not allow.
    (files,) = unit_values("LimitNOFILE")
    assert int(files) > 1024 + 192


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("shellcheck") is None,
    reason="shellcheck is not installed (apt install shellcheck)",
)
def test_shellcheck() -> None:
    assert len(SCRIPTS) >= 8
    result = subprocess.run(
        ["shellcheck", "--external-sources", "--source-path=SCRIPTDIR", *map(str, SCRIPTS)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("arguments", [["--help"], ["--nonsense"], ["--package"]])
def test_the_installer_has_a_help_text(arguments: list[str]) -> None:
    result = subprocess.run(
        [ROOT / "scripts" / "systemd" / "install-systemd.sh", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == (0 if arguments == ["--help"] else 1)
    assert "Usage: install-systemd.sh" in result.stdout + result.stderr or (
        "needs a value" in result.stderr
    )
