"""`algoformer reproduce` without the command line: python -m algoformer.experiments.headless NAME ..

The same runs with the same options, for a machine with a GPU that has neither typer and rich nor matplotlib.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import nullcontext
from pathlib import Path

from algoformer.checks import refusals
from algoformer.experiments.luggage import Packing
from algoformer.experiments.reproduction import reproduce


def main(arguments: list[str] | None = None) -> int:
    """Run, tell every outcome, pack; the exit code is that of the command."""
    begin = time.time()
    parser = argparse.ArgumentParser(prog="algoformer.experiments.headless", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="experiments; all if left out")
    parser.add_argument("--preset", default="gpu")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--minutes", type=float, help="stop in this time; the same command goes on")
    parser.add_argument("--more", type=float, default=0.0, help="minutes that the machine stays after those")
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--pack", type=Path, metavar="FOLDER", help="write what is new, to be moved elsewhere")
    asked = parser.parse_args(arguments)

    def tell(done: int, total: int, what: str) -> None:
        print(f"{time.time() - begin:6.0f} s  {done}/{total} {what}", flush=True)

    packing = None if asked.pack is None else Packing(asked.out, asked.pack, since=begin)
    with refusals(parser), packing or nullcontext():
        found = reproduce(
            asked.names, preset=asked.preset, seeds=asked.seeds, device=asked.device, jobs=asked.jobs, out=asked.out,
            minutes=asked.minutes, more=asked.more, progress=tell,
        )  # fmt: skip
    for o in found.outcomes:
        print(f"{o.experiment}, seed {o.seed}: {o.status} {o.message}".rstrip())
    for file, wrong in found.broken.items():
        print(f"{file} is broken: {wrong}")
    if packing is not None:
        print(f"packed: {', '.join(f'{p.name} ({p.stat().st_size:,} bytes)' for p in packing.made.files)}")
        for left in packing.made.left:
            print(f"no room for {left}")
    return 1 if not found.ok else 3 if found.unfinished else 0


if __name__ == "__main__":
    sys.exit(main())
