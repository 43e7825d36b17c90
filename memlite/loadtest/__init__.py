"""The load tester: concurrent clients, measurements and reports.

Data flows one way. A `Workload` describes what clients do. Worker processes run it against a
target. The measurements are stored in a `Results`, from which the tables, plots and report are
rendered, immediately or later.
"""

__all__: list[str] = []
