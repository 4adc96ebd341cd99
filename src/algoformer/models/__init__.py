"""The models that the papers train, each an Algorithm."""

from algoformer.models.algoformer import AlgoFormer, AlgoFormerConfig
from algoformer.models.blocks import BlockConfig
from algoformer.models.linear_self_attention import LinearSelfAttention, LinearSelfAttentionConfig
from algoformer.models.linear_transformer import LinearTransformer, LinearTransformerConfig
from algoformer.models.looped import Looped, LoopedConfig
from algoformer.models.lstm import LSTM, LSTMConfig
from algoformer.models.model import Model
from algoformer.models.transformer import Transformer, TransformerConfig

__all__ = [
    "LSTM",
    "AlgoFormer",
    "AlgoFormerConfig",
    "BlockConfig",
    "LSTMConfig",
    "LinearSelfAttention",
    "LinearSelfAttentionConfig",
    "LinearTransformer",
    "LinearTransformerConfig",
    "Looped",
    "LoopedConfig",
    "Model",
    "Transformer",
    "TransformerConfig",
]
