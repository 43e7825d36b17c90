"""The plots about clusters: the gain from more nodes, and where processor time goes."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from memlite.loadtest import scaling, selection
from memlite.loadtest.report.plots import Plot, PlotData
from memlite.loadtest.report.plotting import draw_line, generator_limited_legend, interval_caption
from memlite.loadtest.report.style import (
    TargetStyle,
    Theme,
    add_legend,
    load_axis,
    new_figure,
    target_styles,
    value_axis,
)
from memlite.loadtest.scaling import Row
from memlite.loadtest.statistics import positive_interval
from memlite.loadtest.units import duration, short, size

__all__ = ["cluster_plots"]


def cluster_plots(data: PlotData) -> list[Plot]:
    """Return the plots about clusters for which there is data."""
    main = {id(point) for point in selection.with_main_value_size(data.results.points)}
    found = [row for row in scaling.rows(data.results) if id(row.point) in main]
    sizes = selection.value_sizes(data.results.points)
    suffix = f", values of {size(found[0].point.value_size)}" if found and sizes[1:] else ""
    plots = []
    if len({row.cluster.nodes for row in found}) > 1:
        plots.append(_throughput(found, suffix))
    if any(row.node_demand for row in found):
        plots.append(_demand(found, suffix))
    return plots


def _throughput(found: Sequence[Row], suffix: str) -> Plot:
    title = "Throughput against the number of nodes" + suffix
    groups: dict[str, list[Row]] = {}
    for row in sorted(found, key=lambda row: row.cluster.nodes):
        groups.setdefault(row.label, []).append(row)
    points = {label: [row.point for row in of_label] for label, of_label in groups.items()}

    def draw(theme: Theme) -> Figure:
        figure, (axes,) = new_figure(theme, title)
        styles = target_styles(groups, theme)
        drawn: list[float] = []
        for label, of_label in groups.items():
            numbers = [float(row.cluster.nodes) for row in of_label]
            values = [
                positive_interval([one.throughput for one in point.repetitions])
                for point in points[label]
            ]
            drawn += draw_line(axes, styles[label], numbers, values, points[label])
        load_axis(axes, [float(row.cluster.nodes) for row in found], "Nodes")
        value_axis(axes, drawn, "Operations per second", short)
        return add_legend(
            figure, theme, list(styles.values()), generator_limited_legend(points, theme)
        )

    return Plot(
        "nodes",
        title,
        "Higher is better. Each point is the highest throughput over all numbers of clients. "
        + interval_caption(points),
        draw,
    )


def _demand(found: Sequence[Row], suffix: str) -> Plot:
    title = "Processor time per operation" + suffix

    def draw(theme: Theme) -> Figure:
        figure, (axes,) = new_figure(theme, title, height=1.5 + 0.5 * len(found))
        axes.grid(visible=False, axis="y")
        nodes, proxy = theme.colours[0], theme.colours[1]
        for number, row in enumerate(found):
            of_nodes, of_proxy = row.node_demand or 0.0, row.proxy_demand or 0.0
            axes.barh(number, of_nodes, height=0.6, color=nodes)
            axes.barh(number, of_proxy, left=of_nodes, height=0.6, color=proxy)
            axes.annotate(
                duration(of_nodes + of_proxy),
                (of_nodes + of_proxy, number),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
                color=theme.text,
                fontsize=10,
            )
        most = max((row.node_demand or 0.0) + (row.proxy_demand or 0.0) for row in found)
        axes.set_xlim(0, most * 1.25 or 1)
        axes.set_ylim(len(found) - 0.4, -0.6)
        axes.set_yticks(range(len(found)), [row.target for row in found], parse_math=False)
        axes.tick_params(axis="y", length=0, labelcolor=theme.text, labelsize=10.5)
        axes.set_xlabel("Microseconds per operation")
        styles = [TargetStyle("nodes", nodes, "s", "")]
        if any(row.proxy_demand for row in found):
            styles.append(TargetStyle("proxies", proxy, "s", ""))
        return add_legend(figure, theme, styles)

    return Plot(
        "processor-time",
        title,
        "Lower is better. The processor time of all nodes together and of all proxies together; "
        "that of the clients is not included.",
        draw,
    )
