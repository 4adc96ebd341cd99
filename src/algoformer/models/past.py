"""Keys and values of the tokens that were read, so that reading one more token is one token's work."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor


class Past:
    """What one attention layer remembers of a text: keys and values of every pass, since a looped layer has several.

    A text is read in chunks. In the first one each token sees what the mask shows; in a later one, all that is seen of
    the chunks before it, itself, and those before it in the chunk.
    """

    def __init__(self) -> None:
        self.seen: Bool[Tensor, "b s"] | None = None  # of the chunks before
        self.fresh: Bool[Tensor, "b s"] | None = None  # of the chunk that is being read
        self.passes: list[tuple[Tensor, Tensor]] = []
        self.turn = 0

    def begin(self, seen: Bool[Tensor, "b s"]) -> None:
        """Begin a chunk whose tokens of `seen` later ones may see."""
        if self.fresh is not None:
            self.seen = self.fresh if self.seen is None else torch.cat([self.seen, self.fresh], 1)
        self.fresh, self.turn = seen, 0

    def select(self, rows: Int[Tensor, " c"]) -> None:
        """Go on with these rows of the batch."""
        self.passes = [(k[rows], v[rows]) for k, v in self.passes]
        self.seen = None if self.seen is None else self.seen[rows]
        self.fresh = None if self.fresh is None else self.fresh[rows]

    def attend(
        self, qkv: Float[Tensor, "b s _"], heads: int, mask: Bool[Tensor, "b s s"] | None
    ) -> Float[Tensor, "b s e"]:
        """Softmax attention of a chunk to what was read before and to itself."""
        b, s, triple = qkv.shape
        q, k, v = qkv.view(b, s, 3, heads, triple // (3 * heads)).permute(2, 0, 3, 1, 4).unbind(0)
        shown = torch.ones(s, s, dtype=torch.bool, device=q.device).tril().expand(b, s, s) if mask is None else mask
        if self.turn == len(self.passes):
            self.passes.append((k, v))
        else:
            before, values = self.passes[self.turn]
            k, v = torch.cat([before, k], 2), torch.cat([values, v], 2)
            self.passes[self.turn] = k, v
            shown = torch.cat([self.seen[:, None].expand(b, s, -1), shown], 2)  # type: ignore[index]
        self.turn += 1
        o = F.scaled_dot_product_attention(q, k, v, shown[:, None])
        return o.transpose(1, 2).reshape(b, s, triple // 3)
