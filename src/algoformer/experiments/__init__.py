"""Every figure and table of the papers as an experiment: one file each, of five names.

`Config` (the paper's numbers, each marked stated, authors' code or assumed) with the presets SMOKE, CPU, GPU and PAPER;
`run(config, site) -> Result` (plain numbers); `claims(result)` (inequalities that can fail); `plot(result)` (draws).
`REVISION` is raised by hand when a change alters numbers; `knob(result)`, where there is one, makes a slider.
"""

from algoformer.experiments.experiment import Claim, Experiment, Judgement, Knob, Missing, Site, Verdict, judge
from algoformer.experiments.registry import EXPERIMENTS, load
from algoformer.experiments.reproduction import Reproduction, reproduce
from algoformer.experiments.runs import Outcome
from algoformer.experiments.store import Record, Store

__all__ = [
    "EXPERIMENTS",
    "Claim",
    "Experiment",
    "Judgement",
    "Knob",
    "Missing",
    "Outcome",
    "Record",
    "Reproduction",
    "Site",
    "Store",
    "Verdict",
    "judge",
    "load",
    "reproduce",
]
