"""An assembler for attention: numerical algorithms as programs over named registers, compiled to transformers."""

from algoformer.constructions.autoregression import autoregression
from algoformer.constructions.budget import Scales, descent_bound, scales
from algoformer.constructions.chain_of_thought import chain_of_thought
from algoformer.constructions.decoder import decoder_gradient_descent
from algoformer.constructions.encoder import Code, Encoder, Group, Link, LogCount, Spread, Unit
from algoformer.constructions.fused import fuse
from algoformer.constructions.gradient_descent import (
    gradient_descent,
    gradient_descent_plus_plus,
    preconditioned_gradient_descent,
)
from algoformer.constructions.instructions import Clear, Copy, Double, Equal, Gate, Leaky, Linear, Mac, Table
from algoformer.constructions.interpreter import Interpreter, OutOfRange, State
from algoformer.constructions.listing import show
from algoformer.constructions.logistic import damped_newton
from algoformer.constructions.lowering import Compiled, Unsupported, compile
from algoformer.constructions.newton import newton
from algoformer.constructions.newton_schulz import least_squares, matrix_inverse
from algoformer.constructions.program import Gram, Program
from algoformer.constructions.regression import descent_step, regression_with_representation
from algoformer.constructions.storage import load, save
from algoformer.constructions.stream import Form, Stream, join

__all__ = [
    "Clear",
    "Code",
    "Compiled",
    "Copy",
    "Double",
    "Encoder",
    "Equal",
    "Form",
    "Gate",
    "Gram",
    "Group",
    "Interpreter",
    "Leaky",
    "Linear",
    "Link",
    "LogCount",
    "Mac",
    "OutOfRange",
    "Program",
    "Scales",
    "Spread",
    "State",
    "Stream",
    "Table",
    "Unit",
    "Unsupported",
    "autoregression",
    "chain_of_thought",
    "compile",
    "damped_newton",
    "decoder_gradient_descent",
    "descent_bound",
    "descent_step",
    "fuse",
    "gradient_descent",
    "gradient_descent_plus_plus",
    "join",
    "least_squares",
    "load",
    "matrix_inverse",
    "newton",
    "preconditioned_gradient_descent",
    "regression_with_representation",
    "save",
    "scales",
    "show",
]
