"""Estimate what the machines and disks of a Terraform plan cost per hour.

    terraform show -json PLAN | python scripts/gcp/costs.py

Prices are Google's list prices for us-central1 without discounts (September 2026); other regions
cost up to 30% more. Costs that depend on use (operations on the bucket, storage, traffic) are
mentioned but not included.
"""

import json
import re
import sys
from collections import Counter
from typing import Any

__all__ = ["main", "report"]

# US dollars per hour for a vCPU and for a GiB. https://cloud.google.com/compute/vm-instance-pricing
FAMILIES = {"e2": (0.02181159, 0.00292353), "n2": (0.031611, 0.004237)}
GIB_PER_CPU = {"standard": 4, "highmem": 8, "highcpu": 1}
# For shared-core machine types: the fraction of vCPUs, and the memory in GiB.
SHARED = {"e2-micro": (0.25, 1), "e2-small": (0.5, 2), "e2-medium": (1, 4)}
# US dollars per GiB per month. https://cloud.google.com/compute/disks-image-pricing
DISKS = {"pd-standard": 0.04, "pd-balanced": 0.10, "pd-ssd": 0.17}
HOURS_OF_A_MONTH = 730
# An internal load balancer: each of up to five. https://cloud.google.com/load-balancing/pricing
LOAD_BALANCER = 0.025
# Cloud NAT: the gateway, per machine for up to 32, and its address. https://cloud.google.com/nat/pricing
NAT_MACHINE, NAT_ADDRESS, NAT_MOST = 0.0014, 0.005, 32


def main() -> None:
    """Print the estimate for the plan on stdin."""
    print("\n".join(report(json.load(sys.stdin))))


def report(plan: dict[str, Any]) -> list[str]:
    """Return the changes of a plan and the cost of its machines and disks, as lines of text."""
    lines = ["", f"{_changes(plan)}. Total cost afterwards, at us-central1 prices:"]
    resources = list(_resources(plan.get("planned_values", {}).get("root_module", {})))
    machines = [one for kind, one in resources if kind == "google_compute_instance"]
    machines += _managed(resources)
    running = [one for one in machines if one.get("desired_status") != "TERMINATED"]
    total, unknown = 0.0, False
    for machine, count in Counter(one["machine_type"] for one in running).items():
        price = machine_price(machine)
        lines.append(_line(f"{count} x {machine}", price and count * price))
        total += count * (price or 0)
        unknown |= price is None
    disks: Counter[str] = Counter()
    for one in machines:
        for disk in one.get("boot_disk", []):
            for made in disk.get("initialize_params", []):
                disks[made.get("type") or "pd-standard"] += int(made.get("size") or 10)
    for kind, size in disks.items():
        month = DISKS.get(kind)
        price = month and month * size / HOURS_OF_A_MONTH
        lines.append(_line(f"{size} GiB of {kind}", price))
        total += price or 0
        unknown |= price is None
    balancers = sum(kind == "google_compute_forwarding_rule" for kind, _ in resources)
    if balancers:
        price = balancers * LOAD_BALANCER
        lines.append(_line(f"{balancers} x load balancer, internal", price))
        total += price
    if any(kind == "google_compute_router_nat" for kind, _ in resources):
        price = min(len(running), NAT_MOST) * NAT_MACHINE + NAT_ADDRESS
        lines.append(_line("Cloud NAT", price))
        total += price
    more = " (plus unpriced resources)" if unknown else ""
    lines.append(_line(f"per hour, about{more}", total))
    if any(kind == "google_storage_bucket" for kind, _ in resources):
        lines.append("The bucket: $0.005 for 1,000 items written, $0.0004 for 1,000 read, and")
        lines.append("$0.02 per GiB and month.")
    return lines


def machine_price(machine: str) -> float | None:
    """Return the price of a machine type in US dollars per hour; None if it is unknown."""
    family = machine.partition("-")[0]
    found = re.fullmatch(r"[a-z0-9]+-(standard|highmem|highcpu)-(\d+)", machine)
    if family not in FAMILIES or not (found or machine in SHARED):
        return None
    if found:
        cpus = float(found[2])
        memory = cpus * GIB_PER_CPU[found[1]]
    else:
        cpus, memory = SHARED[machine]
    cpu_price, memory_price = FAMILIES[family]
    return cpus * cpu_price + memory * memory_price


def _changes(plan: dict[str, Any]) -> str:
    counts: Counter[str] = Counter()
    for change in plan.get("resource_changes", []):
        counts.update(change["change"]["actions"])
    words = (("create", "created"), ("update", "changed"), ("delete", "destroyed"))
    said = [f"{counts[action]} {word}" for action, word in words if counts[action]]
    return "Resources: " + (", ".join(said) or "none changed")


def _resources(module: dict[str, Any]) -> Any:
    for resource in module.get("resources", []):
        if resource.get("mode") == "managed":
            yield resource["type"], resource.get("values", {})
    for child in module.get("child_modules", []):
        yield from _resources(child)


def _managed(resources: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the machines of managed groups as if they were single machines."""
    templates = {
        one["name_prefix"]: one
        for kind, one in resources
        if kind == "google_compute_instance_template"
    }
    machines = []
    for kind, group in resources:
        if kind == "google_compute_region_instance_group_manager":
            template = templates[f"{group['base_instance_name']}-"]
            (disk,) = template["disk"]
            made = {"size": disk["disk_size_gb"], "type": disk["disk_type"]}
            machine = {
                "machine_type": template["machine_type"],
                "boot_disk": [{"initialize_params": [made]}],
            }
            machines += [machine] * group["target_size"]
    return machines


def _line(what: str, price: float | None) -> str:
    return f"  {what:<44} " + ("   ?" if price is None else f"${price:.3f}")


if __name__ == "__main__":
    main()
