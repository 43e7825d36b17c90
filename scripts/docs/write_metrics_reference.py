"""Write docs/reference/metrics.md from the definitions of the metrics; ``--check`` compares it.

Run it after changing a metric: ``.venv/bin/python scripts/docs/write_metrics_reference.py``.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from memlite.telemetry.metrics.definitions import COMMON, METRICS
from memlite.telemetry.metrics.exporter_names import EXPORTER_METRICS
from memlite.telemetry.metrics.metric import Metric
from memlite.telemetry.metrics.proxy_metrics import PROXY_ONLY
from memlite.telemetry.proxy import MAX_NODES, OTHERS
from memlite.telemetry.snapshot import DURATION_LIMITS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"

HEAD = """\
# Metrics

<!-- Written by scripts/docs/write_metrics_reference.py from memlite/telemetry/metrics/. -->

A server with `--http` exposes these at `/metrics`, as does a proxy, which has
[more](#of-a-proxy); [how to watch a server](../how-to/watch-a-server.md) describes how to
scrape them. They come from the same snapshot as `stats`. Metrics of a feature that a
server does not use, such as a near cache, are absent. Labels never contain keys, so a server has at
most a few hundred series.

Counters restart from zero when the server restarts, and most of them also after `stats reset`.
Histograms of durations have {count} buckets, whose upper bounds are powers of two from {low} µs to
{high} s. Durations of commands are sampled: for example, one in 256 hits from memory on the fast
path.

The text is Prometheus's format 0.0.4 or, for scrapers that accept it, OpenMetrics 1.0.0, which has
exemplars of traced commands (`--trace-sample`). There are no native histograms.

| name | type | labels | meaning |
| --- | --- | --- | --- |
"""

PROXY = """
## Of a proxy

Of the metrics above, a proxy with `--http` or `--otlp` has {common}.

It also has the metrics below. Labels contain the names of nodes, which are their addresses unless a
topology file or `--name` sets other names. The first {most} nodes have their own series. The other
nodes are summed up in the series of `{others}`, without durations. The label `role` is `node` or
`gutter`.

| name | type | labels | meaning |
| --- | --- | --- | --- |
"""

EXPORTER = """
## Names of memcached_exporter

With `--http-metric-names memcached`, a server exposes these instead, and with `both` in addition.
Dashboards and alerts written for
[memcached_exporter](https://github.com/prometheus/memcached_exporter) then work unchanged.
Its metrics of memcached's LRU threads are 0. Slab classes have only evictions, as the rest would
require a scan of all items; extstore and memcached's proxy do not exist here.

| name | type | labels | meaning |
| --- | --- | --- | --- |
"""


def rows(metrics: tuple[Metric, ...]) -> Iterator[str]:
    """Yield a row for each metric."""
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        yield f"| `{metric.name}` | {metric.kind} | {labels} | {metric.meaning} |\n"


def page() -> str:
    """Return the page."""
    head = HEAD.format(
        count=len(DURATION_LIMITS) + 1,
        low=DURATION_LIMITS[0] / 1000,
        high=round(DURATION_LIMITS[-1] / 1e9),
    )
    names = [f"`{metric.name}`" for metric in COMMON if "_udp_" not in metric.name]
    common = f"{', '.join(names[:-1])} and {names[-1]}"
    proxy = PROXY.format(common=common, most=MAX_NODES, others=OTHERS)
    ours = head + "".join(rows(METRICS)) + proxy + "".join(rows(PROXY_ONLY))
    return ours + EXPORTER + "".join(rows(EXPORTER_METRICS))


def main() -> int:
    """Write the page, or compare it."""
    if "--check" in sys.argv[1:]:
        return int(PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
