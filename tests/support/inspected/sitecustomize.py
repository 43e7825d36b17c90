"""Make a Python process report, on SIGUSR2, its objects and its garbage.

Python imports this module automatically if its folder is on the path. The report is written to the
file that ``INSPECTED`` names. It counts the objects of each memlite type, and the objects of any
type that only the garbage collector would have freed.
"""

import gc
import json
import os
import signal
from collections import Counter
from pathlib import Path


def name(one: object) -> str:
    kind = type(one)
    return f"{kind.__module__}.{kind.__qualname__}"


def tell(*_: object) -> None:
    gc.disable()  # so that this collection finds everything
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    garbage = Counter(map(name, gc.garbage))
    gc.garbage.clear()
    gc.set_debug(0)
    gc.collect()  # which frees the garbage
    live = Counter(map(name, gc.get_objects()))
    file = Path(os.environ["INSPECTED"])
    new = file.with_suffix(".new")
    ours = {one: count for one, count in live.items() if one.startswith("memlite.")}
    new.write_text(json.dumps({"live": ours, "garbage": garbage}))
    new.replace(file)


if "INSPECTED" in os.environ:
    signal.signal(signal.SIGUSR2, tell)
