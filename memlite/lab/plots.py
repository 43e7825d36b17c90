"""Plots for notebooks: models over measured values."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from memlite.lab.network import NetworkState
from memlite.lab.scalability import Scalability

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["network_figure", "scalability_figure"]

# From the colour-blind-safe palette of Okabe and Ito.
_MEASURED = "#0072b2"
_MODEL = "#d55e00"
_SIZE = (7.0, 4.2)  # inches


def scalability_figure(
    fit: Scalability, clients: Sequence[float], throughput: Sequence[float]
) -> "Figure":
    """Draw the Universal Scalability Law over the points that it was fitted to.

    Args:
        fit: as returned by `fit_scalability`.
        clients: the number of clients of each point.
        throughput: the throughput of each point, per second.
    """
    figure = _figure(1)
    (axes,) = figure.axes
    most = max(clients)
    if np.isfinite(fit.peak_clients) and fit.peak_clients < 2 * most:
        most = max(most, 1.15 * fit.peak_clients)
        axes.axvline(fit.peak_clients, color=_MODEL, linestyle=":", linewidth=1)
    numbers = np.linspace(1, most, 200)
    law = [fit.throughput(number) for number in numbers]
    label = f"law: σ = {fit.contention:.3g}, κ = {fit.coherency:.2g}"
    axes.plot(numbers, law, color=_MODEL, label=label)
    axes.plot(clients, throughput, "o", color=_MEASURED, label="measured")
    axes.set(xlabel="Clients", ylabel="Operations per second", ylim=(0, None), xlim=(0, None))
    axes.legend(frameon=False)
    return figure


def network_figure(
    states: Sequence[NetworkState],
    clients: Sequence[int],
    throughput: Sequence[float],
    response_time: Sequence[float],
) -> "Figure":
    """Draw the predictions of a closed network over the measured values.

    Args:
        states: the network with 1, 2 … clients, as returned by `exact_mva`.
        clients: the number of clients of each measurement.
        throughput: the throughput of each measurement, per second.
        response_time: the response time of each measurement, in seconds.
    """
    figure = _figure(2)
    left, right = figure.axes
    numbers = range(1, len(states) + 1)
    left.plot(numbers, [one.throughput for one in states], color=_MODEL, label="model")
    left.plot(clients, throughput, "o", color=_MEASURED, label="measured")
    left.set(xlabel="Clients", ylabel="Operations per second", ylim=(0, None))
    times = [1000 * one.response_time for one in states]
    right.plot(numbers, times, color=_MODEL, label="model")
    right.plot(clients, [1000 * one for one in response_time], "o", color=_MEASURED)
    right.set(xlabel="Clients", ylabel="Mean response time, ms", ylim=(0, None))
    left.legend(frameon=False)
    return figure


def _figure(columns: int) -> "Figure":
    # Imported here, as it takes a while.
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE, layout="constrained")
    for axes in np.atleast_1d(figure.subplots(1, columns)):
        axes.grid(visible=True, color="#dde1e6")
        axes.spines[["top", "right"]].set_visible(False)
    return figure
