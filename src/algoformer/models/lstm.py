"""The recurrent baseline: stacked LSTMs over interleaved tokens (Garg et al. 2022; Fu et al. 2024)."""

import contextlib
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from algoformer.checks import real, whole
from algoformer.models.model import Layered, Model
from algoformer.models.precision import tf32
from algoformer.models.tokens import interleaved, sequences
from algoformer.prompt import Chains, Dense, Prompt, Series


@dataclass(frozen=True, kw_only=True)
class LSTMConfig:
    """Layers and width; the defaults have the 5.3 million weights that Fu et al. report.

    If `residual`, a layer adds to its inputs. Without, three layers learn linear regression, and ten do not: what they
    hand on fades with the first steps, and so do the gradients.
    """

    features: int = 20
    labels: int = 1
    width: int = 256
    layers: int = 10
    residual: bool = True
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for name in ("features", "labels", "width", "layers"):
            whole(name, getattr(self, name), 1)
        real("dropout", self.dropout, least=0)
        if self.dropout >= 1:
            raise ValueError(f"dropout must be below 1; got {self.dropout}")


class Hidden(NamedTuple):
    """The outputs of a layer at every token, and the tokens that are read."""

    h: Tensor
    rows: slice | Tensor


class LSTM(Layered, Model):  # type: ignore[misc, override]
    """h_0 = embed(tokens), h_{t+1} = h_t + LSTM_t(h_t); read as head(h_t) at the tokens of x."""

    config: LSTMConfig
    kinds: ClassVar[tuple[type, ...]] = (Prompt, Dense, Series, Chains)
    fused: Any = None

    def __init__(self, config: LSTMConfig, generator: torch.Generator | None = None) -> None:
        super().__init__(config)
        width = config.width
        self.embed = nn.Linear(max(config.features, config.labels), width)
        self.layers = nn.ModuleList(nn.LSTM(width, width, batch_first=True) for _ in range(config.layers))
        self.drop = nn.Dropout(config.dropout)
        self.head = nn.Linear(width, config.labels)
        with torch.no_grad():
            for v in self.parameters():  # the range of nn.LSTM
                v.uniform_(-(width**-0.5), width**-0.5, generator=generator)

    @property
    def variant(self) -> str:
        return f"LSTM ({self.config.layers} layers)"

    def init(self, p: Any) -> Hidden:
        width = max(self.config.features, self.config.labels)
        if not isinstance(p, Prompt):
            values, layout = interleaved(p, width)
            return Hidden(self.embed(values), layout.rows)
        # One sequence a query, which stands right behind the last seen pair; what follows it is never read.
        q, counts = sequences(p)
        values = interleaved(q, width)[0]
        at = 2 * counts[:, None]
        values = values.scatter(1, at[:, :, None].expand(-1, -1, width), values[:, -1:])
        return Hidden(self.embed(values), at)

    def step(self, p: Any, s: Hidden, t: int) -> Hidden:
        return s._replace(h=self._passed(s.h, t, t + 1))

    def visited(self, p: Any, *, first: int, loops: int, gradient: int) -> list[Any]:
        if first < loops or gradient < loops or self._drops:
            return super().visited(p, first=first, loops=loops, gradient=gradient)
        s = self.init(p)
        return [s._replace(h=self._passed(s.h, 0, loops))]

    def fuse(self, on: bool) -> bool:
        self.fused = self._on_kernels() if on else None
        return self.fused is not None

    def graphable(self, kernels: bool) -> bool:
        """Only on kernels: how the library goes through the layers is its own."""
        return kernels and not self.config.dropout and self._on_kernels() is not None

    @property
    def _drops(self) -> bool:
        return self.training and self.config.dropout > 0

    def _on_kernels(self) -> Any:
        """What stands for stacked layers in float32 on a GPU with Triton; None elsewhere."""
        weight = self.embed.weight
        if weight.is_cuda and weight.dtype == torch.float32:
            with contextlib.suppress(ImportError):
                from algoformer.models.wavefront import stacked

                return stacked
        return None

    def _passed(self, h: Tensor, begin: int, end: int) -> Tensor:
        """What layers begin to end - 1 make of h: one of them, where dropout is at work.

        The library knows no bfloat16, and autocast would give it float16, whose range is too small for gradients. Its
        products are of the precision of all others: of itself cuDNN takes TF32, of three digits.
        """
        if not h.shape[1]:  # which the library refuses
            return h
        layers, residual = list(self.layers[begin:end]), self.config.residual
        if self.fused is not None and not self._drops:
            fast: Tensor = self.fused(h, layers, residual)
            return fast
        rough = torch.get_float32_matmul_precision() != "highest"
        with torch.autocast(h.device.type, enabled=False), tf32(rough), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "RNN module weights are not part")  # they are those of the optimiser
            h = h.to(self.embed.weight.dtype)
            for group in [[layer] for layer in layers] if residual else [layers]:
                weights = [w for layer in group for w in layer._flat_weights]  # type: ignore[union-attr]
                zero = h.new_zeros(len(group), len(h), self.config.width)
                out = torch.lstm(h, (zero, zero), weights, True, len(group), 0.0, self.training, False, True)[0]
                h = h + self.drop(out) if residual else self.drop(out)
        return h

    def read(self, p: Any, s: Hidden) -> Tensor:
        if isinstance(s.rows, Tensor) and s.rows.ndim == 2:  # one token of each sequence
            h = s.h.gather(1, s.rows[:, :, None].expand(-1, -1, s.h.shape[2]))
        else:
            h = s.h[:, s.rows]
        out: Tensor = self.head(h).reshape(p.asked)
        return out
