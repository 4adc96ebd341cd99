"""Record the fingerprints of all smoke runs, or of those named: `python -m algoformer.experiments [NAME ...]`."""

import argparse

from algoformer.checks import refusals
from algoformer.experiments import EXPERIMENTS, Site, load
from algoformer.experiments.fingerprints import fingerprint, record

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="algoformer.experiments", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="experiments; all if left out")
    with refusals(parser):
        experiments = {name: load(name) for name in parser.parse_args().names or EXPERIMENTS}
    for name, experiment in experiments.items():
        record(name, experiment.REVISION, fingerprint(experiment.run(experiment.SMOKE, Site())))
        print(name)
