"""Makes a Python process tell, on SIGUSR2, what it holds and what it has left to the collector.

Python imports this by itself where its folder is on the path. What is told goes into the file that
``INSPECTED`` names: how many objects there are of each of memlite's types, and of all types how
many nothing but the collector would ever have freed.
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
    gc.disable()  # so that all it would find is found here
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    garbage = Counter(map(name, gc.garbage))
    gc.garbage.clear()
    gc.set_debug(0)
    gc.collect()  # which frees it
    live = Counter(map(name, gc.get_objects()))
    file = Path(os.environ["INSPECTED"])
    new = file.with_suffix(".new")
    ours = {one: count for one, count in live.items() if one.startswith("memlite.")}
    new.write_text(json.dumps({"live": ours, "garbage": garbage}))
    new.replace(file)


if "INSPECTED" in os.environ:
    signal.signal(signal.SIGUSR2, tell)
