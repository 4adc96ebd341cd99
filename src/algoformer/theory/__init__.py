"""Population losses of linear transformers over Gaussian prompts, exact: moments, losses, optima, bounds."""

from algoformer.theory.moments import Wishart, white, white_polynomial
from algoformer.theory.optima import (
    Enclosure,
    gdpp_optimum,
    layered_optimum,
    looped_optimum,
    one_layer_optimum,
)
from algoformer.theory.population import (
    matrix_layers,
    matrix_loops,
    one_layer,
    plane_layers,
    sampled,
    scalar_gdpp,
    scalar_layers,
    scalar_loops,
    symmetric_loops,
)

__all__ = [
    "Enclosure",
    "Wishart",
    "gdpp_optimum",
    "layered_optimum",
    "looped_optimum",
    "matrix_layers",
    "matrix_loops",
    "one_layer",
    "one_layer_optimum",
    "plane_layers",
    "sampled",
    "scalar_gdpp",
    "scalar_layers",
    "scalar_loops",
    "symmetric_loops",
    "white",
    "white_polynomial",
]
