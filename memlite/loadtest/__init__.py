"""The load tester: concurrent clients, measurements, reports.

One way of data: a `Workload` says what clients do; workers, which are processes, carry it out
against a target; what they measured is a `Results`, from which tables, pictures and the report are
drawn, now or later.
"""

__all__: list[str] = []
