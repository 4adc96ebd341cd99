"""Multi-head attention: softmax, ReLU or linear."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from algoformer.models.past import Past
from algoformer.models.tokens import Mask, shown

Kind = Literal["softmax", "relu", "linear"]
KINDS: tuple[Kind, ...] = ("softmax", "relu", "linear")


class Attention(nn.Module):
    """o_i = W_o sum_j f(<q_i, k_j> / sqrt(c)) v_j over the tokens j that i may attend to, c the width of a head.

    f is the softmax over j; or f(a) = relu(a) / count or f(a) = a / count, count the number of such tokens. `past`
    remembers keys and values, so that a text can go on.
    """

    past: Past | None = None

    def __init__(self, width: int, heads: int, kind: Kind = "softmax", dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.kind, self.dropout = heads, kind, dropout
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Float[Tensor, "b s e"], mask: Mask, rows: slice | Tensor) -> Float[Tensor, "b o e"]:
        b, s, e = x.shape
        qkv, mask = self.qkv(x), shown(mask, s)
        if self.past is not None:
            return self.out(self.past.attend(qkv, self.heads, mask)[:, rows])  # type: ignore[no-any-return]
        dropout = self.dropout if self.training else 0.0
        q, k, v = qkv.view(b, s, 3, self.heads, e // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        if self.kind == "softmax":
            seen = None if mask is None else mask[:, None]
            o = F.scaled_dot_product_attention(q, k, v, seen, dropout_p=dropout, is_causal=mask is None)
        else:
            seen = torch.ones(s, s, dtype=torch.bool, device=x.device).tril() if mask is None else mask[:, None]
            scores = (q @ k.mT) * (e // self.heads) ** -0.5
            scores = (scores.relu() if self.kind == "relu" else scores).masked_fill(~seen, 0)
            o = F.dropout(scores / seen.sum(-1, keepdim=True), dropout) @ v
        out: Tensor = self.out(o.transpose(1, 2).reshape(b, s, e)[:, rows])
        return out
