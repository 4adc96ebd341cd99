"""Which algorithm does it run? Analyses that take any two Algorithms, with statistics; no model is known here."""

from algoformer.analysis.bootstrap import Band, Bootstrap
from algoformer.analysis.compare import (
    Induced,
    Null,
    error_distance,
    error_similarity,
    induced_trace,
    induced_weights,
    null_similarity,
    prefix_similarity,
    readings,
    weight_similarity,
)
from algoformer.analysis.dissection import CLASSICS, Dissection, dissect
from algoformer.analysis.match import Candidate, Matched, Verdict, choose, growth, match, separate
from algoformer.analysis.probe import Probe, Probed, probe
from algoformer.analysis.rates import Rate, rate
from algoformer.analysis.robustness import (
    Error,
    Settling,
    past_training,
    relative_error,
    settling,
    sweep,
    under_shifts,
)
from algoformer.analysis.weights import distance_to, distance_to_identity, interpolated, whitened

__all__ = [
    "CLASSICS",
    "Band",
    "Bootstrap",
    "Candidate",
    "Dissection",
    "Error",
    "Induced",
    "Matched",
    "Null",
    "Probe",
    "Probed",
    "Rate",
    "Settling",
    "Verdict",
    "choose",
    "dissect",
    "distance_to",
    "distance_to_identity",
    "error_distance",
    "error_similarity",
    "growth",
    "induced_trace",
    "induced_weights",
    "interpolated",
    "match",
    "null_similarity",
    "past_training",
    "prefix_similarity",
    "probe",
    "rate",
    "readings",
    "relative_error",
    "separate",
    "settling",
    "sweep",
    "under_shifts",
    "weight_similarity",
    "whitened",
]
