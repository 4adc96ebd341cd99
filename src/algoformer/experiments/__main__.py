"""Record the fingerprints of all smoke runs, or of those named: `python -m algoformer.experiments [NAME ...]`."""

import sys

from algoformer.experiments import EXPERIMENTS, Site, load
from algoformer.experiments.fingerprints import fingerprint, record

for name in sys.argv[1:] or EXPERIMENTS:
    experiment = load(name)
    record(name, experiment.REVISION, fingerprint(experiment.run(experiment.SMOKE, Site())))
    print(name)
