"""Linear transformers of masked linear self-attention (Ahn et al. 2023; Gatmiry et al. 2024).

One sign convention for both papers, Gatmiry's: Z <- Z - (1/n) P Z M (Z' Q Z), and the prediction is minus the label
entry of the query's token. So A > 0 descends; Ahn et al. add the attention, and their A_i, B_i are minus these.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from algoformer.checks import one_of, real, whole
from algoformer.models.model import Model
from algoformer.prompt import Prompt

Form = Literal["full", "eq9", "eq13", "u"]


@dataclass(frozen=True, kw_only=True)
class LinearTransformerConfig:
    """Layers, or with `looped` one layer run `layers` times, and the form of P and Q.

    "eq9": P = [0 0; 0 1], Q = [A 0; 0 0]. "eq13": P = [B 0; 0 1]. "u": P = [0 0; u' 1]. "full": P and Q any matrix.
    `symmetric` uses the symmetric part of A. The first A, B, u, P, Q are N(0, init^2), beside the fixed 1 of P.
    """

    features: int = 5
    labels: int = 1
    layers: int = 3
    looped: bool = False
    form: Form = "eq9"
    symmetric: bool = False
    init: float = 0.05

    def __post_init__(self) -> None:
        for name in ("features", "labels", "layers"):
            whole(name, getattr(self, name), 1)
        one_of("form", self.form, ("full", "eq9", "eq13", "u"))
        real("init", self.init, least=0)
        if self.symmetric and self.form == "full":
            raise ValueError("symmetric must be false in the form 'full', which has no A; got true")


class Tokens(NamedTuple):
    """The tokens (x, y), examples before queries; the examples as the only keys; and 1/n."""

    h: Tensor
    keys: Tensor
    rate: Tensor


class LinearTransformer(Model):
    """Z_{t+1} = Z_t - (1/n) P_t Z_t M (Z_t' Q_t Z_t), where M leaves out the queries; read as minus the label entry."""

    config: LinearTransformerConfig
    kinds: ClassVar[tuple[type, ...]] = (Prompt,)

    def __init__(self, config: LinearTransformerConfig, generator: torch.Generator | None = None) -> None:
        super().__init__(config)
        count, d, size = 1 if config.looped else config.layers, config.features, config.features + config.labels

        def drawn(*shape: int) -> nn.Parameter:
            return nn.Parameter(config.init * torch.randn(count, *shape, generator=generator))

        if config.form == "full":
            self.P, self.Q = drawn(size, size), drawn(size, size)
            with torch.no_grad():
                self.P[:, d:, d:] += torch.eye(config.labels)
        else:
            self.A = drawn(d, d)
        if config.form == "eq13":
            self.B = drawn(d, d)
        if config.form == "u":
            self.u = drawn(config.labels, d)

    @property
    def steps(self) -> int:  # type: ignore[override]
        return self.config.layers

    @property
    def limit(self) -> int | None:  # type: ignore[override]
        return None if self.config.looped else self.config.layers

    @property
    def truncatable(self) -> bool:  # type: ignore[override]
        return self.config.looped

    @property
    def bilinear(self) -> bool:
        """Is the prediction linear in the labels and in the query, each label alone?"""
        return self.config.form in ("eq9", "eq13")

    @property
    def any_labels(self) -> bool:  # type: ignore[override]
        return self.bilinear

    @property
    def variant(self) -> str:
        kind = "looped" if self.config.looped else "layered"
        return f"LinearTransformer ({kind}, {self.config.layers} steps, {self.config.form})"

    def matrices(self, t: int, labels: int = 1) -> tuple[Float[Tensor, "size size"], Float[Tensor, "size size"]]:
        """P_t and Q_t."""
        t, d = 0 if self.config.looped else t, self.config.features
        if self.config.form == "full":
            return self.P[t], self.Q[t]
        A = (self.A[t] + self.A[t].mT) / 2 if self.config.symmetric else self.A[t]
        left = A.new_zeros(d + labels, d)
        if self.config.form == "eq13":
            left = F.pad(self.B[t], (0, 0, 0, labels))
        if self.config.form == "u":
            left = F.pad(self.u[t], (0, 0, d, 0))
        right = F.pad(torch.eye(labels, dtype=A.dtype, device=A.device), (0, 0, d, 0))
        return torch.cat([left, right], 1), F.pad(A, (0, labels, 0, labels))

    def init(self, p: Prompt) -> Tokens:
        h, keys = joined(p, self.config.features)
        return Tokens(h, keys, p.counts.clamp(min=1).reciprocal())

    def step(self, p: Prompt, s: Tokens, t: int) -> Tokens:
        P, Q = self.matrices(t, p.y.shape[2])
        gram = (s.h * s.keys).mT @ s.h * s.rate[:, None, None]
        return s._replace(h=s.h - s.h @ (Q.mT @ gram @ P.mT))

    def read(self, p: Prompt, s: Tokens) -> Tensor:
        return -s.h[:, p.x.shape[1] :, self.config.features :]


def joined(p: Prompt, features: int) -> tuple[Float[Tensor, "b s size"], Float[Tensor, "b s 1"]]:
    """The tokens (x_i, y_i) and (query, 0), the unseen ones 0, and a column that is 1 at the seen examples."""
    x, y = p.pairs
    m = p.queries.shape[1]
    x = F.pad(torch.cat([x, p.queries], 1), (0, features - x.shape[2]))
    keys = F.pad(p.seen.to(x.dtype), (0, m))
    return torch.cat([x, F.pad(y, (0, 0, 0, m))], 2), keys[:, :, None]
