"""Environment variables that Kubernetes and Docker links set for a service of a similar name."""

import re

__all__ = ["is_service_link"]

# The variables of a service named `memlite`, or `memlite-something`:
# https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
_LINK = re.compile(
    r"MEMLITE(_\w+)?_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)
_ADDRESS = re.compile(r"(tcp|udp|sctp)://")
_OF_A_PORT = re.compile(r"_\d+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR)$")


def is_service_link(variable: str, text: str) -> bool:
    """Return whether an environment variable describes a service rather than a memlite setting.

    Args:
        variable: its name.
        text: its value: ``MEMLITE_PORT`` may be either.
    """
    if not _LINK.fullmatch(variable):
        return False
    if "_SERVICE_" in variable or _OF_A_PORT.search(variable):
        return True
    return _ADDRESS.match(text) is not None
