#!/usr/bin/env python3
"""Fetches memlite's passwords and certificates from Secret Manager, with this VM's service account.

Runs before memlite starts, and every few minutes with --reload, which makes memlite read files that
have changed. Each line of the list names a file and a version of a secret. Files are only replaced
all together: if one cannot be fetched, or the key is not the certificate's, the old ones stay.
"""

import argparse
import base64
import json
import os
import pwd
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

METADATA = os.environ.get("METADATA_URL", "http://metadata.google.internal")
SECRETS = os.environ.get("SECRETS_URL", "https://secretmanager.googleapis.com")
TOKEN = f"{METADATA}/computeMetadata/v1/instance/service-accounts/default/token"
SECONDS = 20


def main() -> int:
    """Fetch the files; return 0 if there are usable ones, be they new or old."""
    parser = argparse.ArgumentParser(description="Fetches memlite's passwords and certificates.")
    parser.add_argument("--list", type=Path, default=Path("/etc/memlite/secrets.list"))
    parser.add_argument("--folder", type=Path, default=Path("/etc/memlite/secrets"))
    parser.add_argument("--owner", default="memlite")
    parser.add_argument("--reload", action="store_true", help="tell memlite of changes")
    options = parser.parse_args()
    wanted = dict(line.split() for line in options.list.read_text().splitlines())
    try:
        found = fetch(wanted)
        changed = replace(options.folder, found, options.owner)
    except (OSError, ValueError, KeyError) as error:
        # None of these errors contains a secret.
        print(f"memlite-secrets: error: {error}", file=sys.stderr)
        if not all((options.folder / name).exists() for name in wanted):
            return 1
        print("memlite-secrets: the files fetched before stay in use", file=sys.stderr)
        return 0
    for name in changed:
        print(f"memlite-secrets: {name} is new")
    if changed and options.reload:
        subprocess.run(["systemctl", "try-reload-or-restart", "memlite.service"], check=True)
    return 0


def fetch(wanted: dict[str, str]) -> dict[str, bytes]:
    """Return the contents of secrets by file."""
    if not wanted:
        return {}
    token = ask(TOKEN, {"Metadata-Flavor": "Google"})["access_token"]
    found = {}
    for name, version in wanted.items():
        try:
            answer = ask(f"{SECRETS}/v1/{version}:access", {"Authorization": f"Bearer {token}"})
        except OSError as error:
            raise OSError(f"{version}: {error}") from None
        found[name] = base64.b64decode(answer["payload"]["data"])
    return found


def ask(url: str, headers: dict[str, str]) -> Any:
    """Return what a server answers."""
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return json.load(answer)


def replace(folder: Path, found: dict[str, bytes], owner: str) -> list[str]:
    """Replace the files that differ, and remove all others; return the names of the new ones."""
    os.umask(0o077)
    user = pwd.getpwnam(owner)
    folder.mkdir(exist_ok=True)
    os.chown(folder, user.pw_uid, user.pw_gid)
    changed = [name for name, content in found.items() if read(folder / name) != content]
    for name, content in found.items():
        (folder / f".{name}").write_bytes(content)
        os.chown(folder / f".{name}", user.pw_uid, user.pw_gid)
    if "tls_certificate" in found:
        check_key(folder / ".tls_certificate", folder / ".tls_key")
    for name in found:
        (folder / f".{name}").replace(folder / name)
    for file in folder.iterdir():
        if file.name not in found:
            file.unlink()
    return changed


def read(file: Path) -> bytes | None:
    """Return a file's content; None if there is no such file."""
    return file.read_bytes() if file.exists() else None


def check_key(certificate: Path, key: Path) -> None:
    """Raise ``ValueError`` unless the key is that of the certificate."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        raise ValueError(f"tls_certificate and tls_key: {error.reason or error}") from None


if __name__ == "__main__":
    sys.exit(main())
