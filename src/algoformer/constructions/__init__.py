"""An assembler for attention: numerical algorithms as programs over named registers, compiled to transformers."""

from algoformer.constructions.gradient_descent import (
    gradient_descent,
    gradient_descent_plus_plus,
    preconditioned_gradient_descent,
)
from algoformer.constructions.interpreter import Interpreter, State
from algoformer.constructions.lowering import Compiled, Unsupported, compile
from algoformer.constructions.program import Gram, Program
