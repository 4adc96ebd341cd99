"""An assembler for attention: numerical algorithms as programs over named registers, compiled to transformers."""

from algoformer.constructions.gradient_descent import (
    gradient_descent,
    gradient_descent_plus_plus,
    preconditioned_gradient_descent,
)
from algoformer.constructions.interpreter import Interpreter, State
from algoformer.constructions.lowering import Compiled, Unsupported, compile
from algoformer.constructions.program import Gram, Program
from algoformer.constructions.autoregression import autoregression
from algoformer.constructions.chain_of_thought import chain_of_thought
from algoformer.constructions.decoder import decoder_gradient_descent
from algoformer.constructions.newton import newton
from algoformer.constructions.regression import descent_step, regression_with_representation
