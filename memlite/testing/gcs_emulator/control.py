"""The control endpoint ``/_emulator/``: access to faults and counters over HTTP."""

from collections import Counter
from typing import Any

from memlite.testing.gcs_emulator.errors import GcsError
from memlite.testing.gcs_emulator.faults import Faults
from memlite.testing.gcs_emulator.messages import Request, Response, json_response

__all__ = ["PREFIX", "Control"]

PREFIX = "/_emulator/"
"""The prefix of the control endpoint's paths."""

_RATES = ("reset_rate", "lost_ack_rate", "lost_ack", "late_rate")
_LATENCIES = ("latency", "read_latency", "write_latency", "late_delay")


class Control:
    """The control endpoint.

    Args:
        faults: the faults, which may be changed.
        operations: the counters, which may be read and reset.
    """

    def __init__(self, faults: Faults, operations: Counter[str]) -> None:
        self._faults = faults
        self._operations = operations

    def handle(self, request: Request) -> Response:
        """Answer a request whose path starts with `PREFIX`.

        Raises:
            GcsError: 400, 404 or 501.
        """
        match request.method, request.path.removeprefix(PREFIX):
            case "GET", "health":
                return json_response({"status": "ok"})
            case "GET", "faults":
                return json_response(self._describe_faults())
            case "PATCH", "faults":
                self._change_faults(request.json())
                return json_response(self._describe_faults())
            case "DELETE", "faults":
                self._faults.clear()
                return json_response(self._describe_faults())
            case "GET", "statistics":
                return json_response(self._statistics())
            case "DELETE", "statistics":
                self._operations.clear()
                self._faults.counts.clear()
                return json_response(self._statistics())
            case _, "health" | "faults" | "statistics":
                raise GcsError.not_emulated(f"the method {request.method} for this path")
            case _:
                raise GcsError.unknown_path()

    def _describe_faults(self) -> dict[str, Any]:
        plan = self._faults.plan
        return {
            "read_latency": str(plan.read_latency or "none"),
            "write_latency": str(plan.write_latency or "none"),
            "error_rates": {str(status): rate for status, rate in plan.error_rates.items()},
            "reset_rate": plan.reset_rate,
            "lost_ack_rate": plan.lost_ack_rate,
            "lost_ack": plan.lost_ack,
            "late_rate": plan.late_rate,
            "late_delay": str(plan.late_delay or "none"),
            "outage": self._faults.outage,
        }

    def _statistics(self) -> dict[str, Any]:
        return {"operations": dict(self._operations), "faults": dict(self._faults.counts)}

    def _change_faults(self, values: dict[str, Any]) -> None:
        known = {*_RATES, *_LATENCIES, "error_rates", "outage", "seed"}
        if unknown := values.keys() - known:
            raise GcsError.invalid(f"Unknown fault {min(unknown)!r}.")
        changes = {name: values[name] for name in _RATES if name in values}
        try:
            for name in _LATENCIES:
                if name in values:
                    changes[name] = str(values[name] or "none")
            if "error_rates" in values:
                rates = dict(values["error_rates"] or {})
                changes["error_rates"] = {int(status): rate for status, rate in rates.items()}
            self._faults.set(**changes)
            if "seed" in values:
                self._faults.reseed(values["seed"])
            if "outage" in values:
                self._change_outage(values["outage"])
        except (TypeError, ValueError) as error:
            raise GcsError.invalid(str(error)) from None

    def _change_outage(self, value: object) -> None:
        """Start or end an outage, given null, a kind, or an object with kind and seconds."""
        if value is None:
            self._faults.end_outage()
        elif isinstance(value, dict):
            seconds = value.get("seconds")
            self._faults.begin_outage(
                value.get("kind", ""), None if seconds is None else float(seconds)
            )
        else:
            self._faults.begin_outage(value)  # type: ignore[arg-type]  # validated there
