"""All plots of the report, in page order."""

from memlite.loadtest.report.cluster_plots import cluster_plots
from memlite.loadtest.report.plots import Plot, PlotData, plots
from memlite.loadtest.report.saturation_plots import saturation
from memlite.loadtest.report.time_plots import timeline

__all__ = ["all_plots"]


def all_plots(data: PlotData) -> list[Plot]:
    """Return the plots for which there is data."""
    return [*cluster_plots(data), *plots(data), *saturation(data), *timeline(data)]
