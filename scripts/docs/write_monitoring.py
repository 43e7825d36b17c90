"""Write alerts and dashboards from the definitions of the metrics.

The files are deploy/monitoring/alerts.yaml for Prometheus and grafana.json for Grafana, and
terraform/monitoring_alerts.json and monitoring_dashboard.json for Cloud Monitoring. ``--check``
only checks that they are up to date. Run it after changing a metric: ``.venv/bin/python
scripts/docs/write_monitoring.py``.
"""

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

from memlite.telemetry.metrics.definitions import METRICS
from memlite.telemetry.metrics.proxy_metrics import PROXY_ONLY

FOLDER = Path(__file__).parents[2] / "deploy" / "monitoring"
MODULE = Path(__file__).parents[2] / "terraform"
BY_NAME = {metric.name: metric for metric in (*METRICS, *PROXY_ONLY)}

HEAD = """\
# Written by scripts/docs/write_monitoring.py: edit that. Add this file to Prometheus's rule_files.
"""


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert.

    Attributes:
        name: its name.
        metric: its metric; alerts on a metric that a server lacks never fire.
        query: in PromQL; ``{}`` stands for the metric.
        lasting: how long the condition must last.
        severity: ``critical`` if it should wake someone up.
        summary: the problem; ``{{ $value }}`` is the value of the query.
        cure: what to check.
    """

    name: str
    metric: str
    query: str
    lasting: str
    severity: str
    summary: str
    cure: str


ALERTS = (
    Alert(
        "MemliteDown",
        "memlite_build_info",
        "up == 0 and on (job, instance) last_over_time({}[1h])",
        "1m",
        "critical",
        "{{ $labels.instance }} cannot be scraped.",
        "It has stopped, hangs, or cannot be reached; /healthz distinguishes the last two.",
    ),
    Alert(
        "MemliteNotReady",
        "memlite_ready",
        "{} == 0",
        "1m",
        "critical",
        "{{ $labels.instance }} is not ready to serve requests.",
        "/readyz gives the reason.",
    ),
    Alert(
        "MemliteStoreDown",
        "memlite_backend_up",
        "{} == 0",
        "1m",
        "critical",
        "The store of {{ $labels.instance }} is failing.",
        "See the log for errors; stats backend shows the last one.",
    ),
    Alert(
        "MemliteCommandsFail",
        "memlite_backend_failed_commands_total",
        "rate({}[5m]) > 0.1",
        "5m",
        "critical",
        "{{ $value | humanize }} commands per second fail in the store of {{ $labels.instance }}.",
        "memlite_backend_problems_total distinguishes repeated, refused and throttled requests.",
    ),
    Alert(
        "MemliteConnectionsRejected",
        "memlite_connections_rejected_total",
        "increase({}[5m]) > 0",
        "0m",
        "warning",
        "{{ $labels.instance }} has rejected {{ $value | humanize }} connections in five minutes.",
        "Raise -c, or find the client that opens too many.",
    ),
    Alert(
        "MemliteStoresRefused",
        "memlite_stores_refused_total",
        'increase({}{reason="no_memory"}[5m]) > 0',
        "0m",
        "warning",
        "{{ $labels.instance }} had no room for {{ $value | humanize }} values in five minutes.",
        "Raise -m, or remove -M.",
    ),
    Alert(
        "MemliteEvictsRecentItems",
        "memlite_size_class_evicted_idle_seconds",
        "min by (instance) ({} and on (instance, size_class) "
        "rate(memlite_size_class_evictions_total[5m]) > 0) < 60",
        "10m",
        "warning",
        "{{ $labels.instance }} evicts items that were used {{ $value | humanizeDuration }} ago.",
        "The cache is too small for the items in use; raise -m.",
    ),
    Alert(
        "MemliteSlow",
        "memlite_command_duration_seconds",
        "histogram_quantile(0.99, sum by (instance, class, le) (rate({}_bucket[5m]))) > 0.1",
        "10m",
        "warning",
        "One in a hundred {{ $labels.class }} commands takes {{ $value | humanizeDuration }} on "
        "{{ $labels.instance }}.",
        "If the backend is memory, check the server's CPU; otherwise, check the store.",
    ),
    Alert(
        "MemliteJournalSlow",
        "memlite_journal_fsync_duration_seconds",
        "histogram_quantile(0.99, sum by (instance, le) (rate({}_bucket[5m]))) > 0.25",
        "10m",
        "warning",
        "One in a hundred fsyncs takes {{ $value | humanizeDuration }} on {{ $labels.instance }}.",
        "The disk is slow or busy; --durability everysec does not wait for it.",
    ),
    Alert(
        "MemliteCertificateOld",
        "memlite_tls_certificate_age_seconds",
        "{} > 60 * 86400",
        "1h",
        "warning",
        "{{ $labels.instance }} loaded its certificate {{ $value | humanizeDuration }} ago.",
        "Renew it, and send SIGHUP.",
    ),
    Alert(
        "MemliteProxyNodeDown",
        "memlite_proxy_node_up",
        "{} == 0",
        "1m",
        "critical",
        "{{ $labels.instance }} cannot reach the node {{ $labels.node }}.",
        "The proxy's dashboard and stats show the reason.",
    ),
    Alert(
        "MemliteProxyRequestsFail",
        "memlite_proxy_failed_requests_total",
        "rate({}[5m]) > 0.1",
        "5m",
        "critical",
        "{{ $value | humanize }} requests per second fail at {{ $labels.instance }}.",
        "memlite_proxy_node_failures_total and memlite_proxy_queue_discarded_total show where.",
    ),
    Alert(
        "MemliteProxyQueueDiscards",
        "memlite_proxy_queue_discarded_total",
        'increase({}{reason=~"refused|expired"}[5m]) > 0',
        "0m",
        "warning",
        "{{ $labels.instance }} discarded {{ $value | humanize }} queued requests in five minutes.",
        "The nodes are too slow for this load; raise --in-flight if they have spare capacity.",
    ),
    Alert(
        "MemliteProxyNodeSlow",
        "memlite_proxy_node_duration_seconds",
        "histogram_quantile(0.99, sum by (instance, node, le) (rate({}_bucket[5m]))) > 0.1",
        "10m",
        "warning",
        "One in a hundred replies of {{ $labels.node }} takes {{ $value | humanizeDuration }} at "
        "{{ $labels.instance }}.",
        "Check the node's CPU and the network to it.",
    ),
)


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel of the dashboard.

    Attributes:
        title: its title.
        metric: its metric, whose meaning is the panel's description.
        queries: pairs of a query, in which ``{}`` stands for the metric, and a legend.
        unit: Grafana's name of the unit.
    """

    title: str
    metric: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"


CHOSEN = 'instance=~"$instance"'


def quantile(share: float, labels: str, chosen: str = "{CHOSEN}") -> str:
    """Return the query for a quantile, grouped by labels."""
    rate = f"rate({{}}_bucket{chosen}[$__rate_interval])"
    return f"histogram_quantile({share}, sum by ({labels}) ({rate}))"


READS = 'sum by (instance) (rate({}{command="get",CHOSEN}[$__rate_interval]))'
HITS = READS.replace(",CHOSEN", ',result="hit",CHOSEN')
PROXY_READS = READS.replace('command="get"', 'class="get",result=~"hit|miss"')
PROXY_HITS = READS.replace('command="get"', 'class="get",result="hit"')

PANELS = (
    Panel("Ready", "memlite_ready", (("{}{CHOSEN}", "{{instance}}"),)),
    Panel(
        "Commands per second",
        "memlite_commands_total",
        (
            (
                "sum by (command, result) (rate({}{CHOSEN}[$__rate_interval]))",
                "{{command}} {{result}}",
            ),
        ),
        "ops",
    ),
    Panel(
        "Hit ratio",
        "memlite_commands_total",
        (
            (
                f"{HITS} / {READS}",
                "{{instance}}",
            ),
        ),
        "percentunit",
    ),
    Panel(
        "Get latency",
        "memlite_command_duration_seconds",
        tuple(
            (
                quantile(share, "le", '{class="get",CHOSEN}'),
                legend,
            )
            for share, legend in ((0.5, "median"), (0.99, "99 %"), (0.999, "99.9 %"))
        ),
        "s",
    ),
    Panel(
        "99th percentile by class",
        "memlite_command_duration_seconds",
        (
            (
                quantile(0.99, "class, le"),
                "{{class}}",
            ),
        ),
        "s",
    ),
    Panel(
        "Memory used by items",
        "memlite_items_bytes",
        (
            ("sum by (instance) ({}{CHOSEN})", "{{instance}}"),
            ("sum by (instance) (memlite_items_limit_bytes{CHOSEN})", "{{instance}} limit"),
        ),
        "bytes",
    ),
    Panel("Items", "memlite_items", (("{}{CHOSEN}", "{{instance}}"),)),
    Panel(
        "Evictions per second",
        "memlite_evictions_total",
        (
            (
                "sum by (instance, fetched) (rate({}{CHOSEN}[$__rate_interval]))",
                "{{instance}} read: {{fetched}}",
            ),
        ),
        "ops",
    ),
    Panel(
        "Idle time of the last evicted items",
        "memlite_size_class_evicted_idle_seconds",
        (("min by (instance) ({}{CHOSEN})", "{{instance}}"),),
        "s",
    ),
    Panel(
        "Connections",
        "memlite_open_connections",
        (("{}{CHOSEN}", "{{instance}}"), ("memlite_connections_limit{CHOSEN}", "limit")),
    ),
    Panel(
        "Network",
        "memlite_network_bytes_total",
        (("sum by (direction) (rate({}{CHOSEN}[$__rate_interval]))", "{{direction}}"),),
        "Bps",
    ),
    Panel(
        "Processor",
        "memlite_process_cpu_seconds_total",
        (("sum by (instance) (rate({}{CHOSEN}[$__rate_interval]))", "{{instance}}"),),
        "percentunit",
    ),
    Panel(
        "Near cache",
        "memlite_near_cache_reads_total",
        (("sum by (result) (rate({}{CHOSEN}[$__rate_interval]))", "{{result}}"),),
        "ops",
    ),
    Panel(
        "99th percentile of requests to the store",
        "memlite_backend_operation_duration_seconds",
        (
            (
                quantile(0.99, "operation, outcome, le"),
                "{{operation}} {{outcome}}",
            ),
        ),
        "s",
    ),
    Panel(
        "Problems with the store",
        "memlite_backend_problems_total",
        (("sum by (problem) (rate({}{CHOSEN}[$__rate_interval]))", "{{problem}}"),),
        "ops",
    ),
    Panel(
        "Journal fsyncs",
        "memlite_journal_fsync_duration_seconds",
        (
            (
                quantile(0.99, "instance, le"),
                "{{instance}} 99 %",
            ),
        ),
        "s",
    ),
    Panel(
        "Proxies: commands per second",
        "memlite_proxy_commands_total",
        (
            (
                "sum by (class, result) (rate({}{CHOSEN}[$__rate_interval]))",
                "{{class}} {{result}}",
            ),
        ),
        "ops",
    ),
    Panel(
        "Proxies: hit ratio",
        "memlite_proxy_commands_total",
        (
            (
                f"{PROXY_HITS} / {PROXY_READS}",
                "{{instance}}",
            ),
        ),
        "percentunit",
    ),
    Panel(
        "Proxies: reachable nodes",
        "memlite_proxy_nodes",
        (
            ('sum by (instance) ({}{state="up",CHOSEN})', "{{instance}} up"),
            ("sum by (instance) ({}{CHOSEN})", "{{instance}} all"),
        ),
    ),
    Panel(
        "Proxies: requests to each node",
        "memlite_proxy_node_requests_total",
        (("sum by (node) (rate({}{CHOSEN}[$__rate_interval]))", "{{node}}"),),
        "ops",
    ),
    Panel(
        "Proxies: 99th percentile of each node",
        "memlite_proxy_node_duration_seconds",
        ((quantile(0.99, "node, le"), "{{node}}"),),
        "s",
    ),
    Panel(
        "Proxies: failures of each node",
        "memlite_proxy_node_failures_total",
        (("sum by (node) (rate({}{CHOSEN}[$__rate_interval]))", "{{node}}"),),
        "ops",
    ),
    Panel(
        "Proxies: queue",
        "memlite_proxy_queue_length",
        (
            ("{}{CHOSEN}", "{{instance}} waiting"),
            ("memlite_proxy_queue_in_flight{CHOSEN}", "{{instance}} in flight"),
        ),
    ),
    Panel(
        "Proxies: time in the queue",
        "memlite_proxy_queue_wait_duration_seconds",
        ((quantile(0.99, "instance, le"), "{{instance}} 99 %"),),
        "s",
    ),
    Panel(
        "Proxies: items moved between nodes",
        "memlite_proxy_move_items_moved",
        (
            ("max({}{CHOSEN})", "moved"),
            ("max(memlite_proxy_move_items{CHOSEN})", "to move"),
        ),
    ),
)


CLOUD_UNITS = {
    "short": "1",
    "ops": "1/s",
    "percentunit": "10^2.%",
    "s": "s",
    "bytes": "By",
    "Bps": "By/s",
}
"""Units of panels, as Cloud Monitoring writes them (UCUM)."""


def alerts() -> str:
    """Return Prometheus's alerting rules."""
    rules = [
        {
            "alert": one.name,
            "expr": one.query.replace("{}", BY_NAME[one.metric].name),
            "for": one.lasting,
            "labels": {"severity": one.severity},
            "annotations": {
                "summary": one.summary,
                "description": f"{one.cure} {one.metric}: {BY_NAME[one.metric].meaning}",
            },
        }
        for one in ALERTS
    ]
    groups = {"groups": [{"name": "memlite", "rules": rules}]}
    return HEAD + yaml.safe_dump(groups, sort_keys=False, width=100)


def query_of(panel: Panel, query: str) -> str:
    """Return a panel's query."""
    named = query.replace("{}", BY_NAME[panel.metric].name)
    return named.replace("{CHOSEN}", f"{{{CHOSEN}}}").replace(",CHOSEN}", f",{CHOSEN}}}")


def board() -> str:
    """Return the dashboard for Grafana."""
    source = {"type": "prometheus", "uid": "${source}"}
    panels = [
        {
            "id": number + 1,
            "type": "timeseries",
            "title": one.title,
            "description": BY_NAME[one.metric].meaning,
            "datasource": source,
            "gridPos": {"h": 8, "w": 12, "x": 12 * (number % 2), "y": 8 * (number // 2)},
            "fieldConfig": {"defaults": {"unit": one.unit, "min": 0}, "overrides": []},
            "targets": [
                {
                    "refId": chr(ord("A") + index),
                    "datasource": source,
                    "expr": query_of(one, query),
                    "legendFormat": legend,
                }
                for index, (query, legend) in enumerate(one.queries)
            ],
        }
        for number, one in enumerate(PANELS)
    ]
    found = {
        "title": "memlite",
        "uid": "memlite",
        "tags": ["memlite"],
        "schemaVersion": 39,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "templating": {
            "list": [
                {"name": "source", "type": "datasource", "query": "prometheus"},
                {
                    "name": "instance",
                    "type": "query",
                    "datasource": source,
                    "query": "label_values(memlite_build_info, instance)",
                    "refresh": 2,
                    "includeAll": True,
                    "multi": True,
                    "current": {"text": "All", "value": "$__all"},
                },
            ]
        },
        "panels": panels,
    }
    return json.dumps(found, indent=2) + "\n"


def in_the_cloud(query: str) -> str:
    """Return a query in Cloud Monitoring's form, for one deployment of the Terraform module.

    The Ops Agent scrapes loopback, so the module configures it to set labels: the deployment, and
    the VM in place of the instance. Terraform replaces DEPLOYMENT.
    """
    query = re.sub(r"\binstance\b", "vm", query.replace(",CHOSEN", "").replace("{CHOSEN}", ""))
    query = query.replace("$__rate_interval", "5m")
    chosen = 'deployment="DEPLOYMENT"'
    query = re.sub(r"(memlite_\w+)(?![\w{])", rf"\1{{{chosen}}}", query)
    return re.sub(r"(memlite_\w+){(?!deployment)", rf"\1{{{chosen},", query)


def cloud_alerts() -> str:
    """Return the alerts for Cloud Monitoring, except the one for servers that are down.

    The module has its own, which knows the expected number of servers.
    """
    found = {
        one.name: {
            "query": in_the_cloud(one.query.replace("{}", BY_NAME[one.metric].name)),
            "duration": f"{int(one.lasting[:-1]) * {'m': 60, 'h': 3600}[one.lasting[-1]]}s",
            "severity": one.severity.upper(),
            "documentation": f"{one.cure} {one.metric}: {BY_NAME[one.metric].meaning}",
        }
        for one in ALERTS
        if one.name != "MemliteDown"
    }
    return json.dumps(found, indent=2) + "\n"


def cloud_dashboard() -> str:
    """Return the dashboard for Cloud Monitoring."""
    tiles = [
        {
            "xPos": 24 * (number % 2),
            "yPos": 16 * (number // 2),
            "width": 24,
            "height": 16,
            "widget": {
                "title": one.title,
                "xyChart": {
                    "dataSets": [
                        {
                            "plotType": "LINE",
                            "targetAxis": "Y1",
                            "timeSeriesQuery": {
                                "prometheusQuery": in_the_cloud(
                                    query.replace("{}", BY_NAME[one.metric].name)
                                ),
                                "unitOverride": CLOUD_UNITS[one.unit],
                            },
                        }
                        for query, _ in one.queries
                    ],
                    "yAxis": {"scale": "LINEAR"},
                },
            },
        }
        for number, one in enumerate(PANELS)
    ]
    found = {"displayName": "memlite: DEPLOYMENT", "mosaicLayout": {"columns": 48, "tiles": tiles}}
    return json.dumps(found, indent=2) + "\n"


def files() -> dict[Path, str]:
    """Return the expected content of the files."""
    return {
        FOLDER / "alerts.yaml": alerts(),
        FOLDER / "grafana.json": board(),
        MODULE / "monitoring_alerts.json": cloud_alerts(),
        MODULE / "monitoring_dashboard.json": cloud_dashboard(),
    }


def main() -> int:
    """Write the files, or check that they are up to date."""
    if "--check" in sys.argv[1:]:
        return int(any(path.read_text(encoding="utf-8") != text for path, text in files().items()))
    FOLDER.mkdir(exist_ok=True)
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
