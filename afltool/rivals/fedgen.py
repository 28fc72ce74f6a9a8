"""FedGen, whose server trains a generator of features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from .base import Method, Rows, first_weights
from .network import DenseLayers, Model, Tensor
from .settings import Settings

if TYPE_CHECKING:
    import numpy as np

BATCH = 64  # generated rows of a step if the clients take all their rows at once


@dataclass(frozen=True, kw_only=True)
class FedGenSettings(Settings):
    """Options of FedGen."""

    weight: float = Field(
        default=1.0, ge=0, description="λ, the weight of the generated features in a client's loss"
    )
    noise: int = Field(
        default=512, ge=1, le=2**16, description="numbers of noise that the generator starts from"
    )
    generator_hidden: int = Field(
        default=512, ge=1, le=2**16, description="width of the generator's hidden layer"
    )
    generator_steps: int = Field(
        default=50,
        ge=0,
        le=10**6,
        description="steps of Adam on the generator in a round (PFLlib: 1000)",
    )
    generator_lr: float = Field(default=0.005, gt=0, description="Adam's step on the generator")


class FedGen(Method):
    """FedGen: the server trains a generator of features; clients also learn from generated
    features.

        server: min_ω E CE(W̄ᵀ z̃, y);   client: F_k(W) + λ E CE(Wᵀ z̃, y),   z = G_ω(noise, one-hot y)

    Zhu, Hong, Zhou, "Data-free knowledge distillation for heterogeneous federated learning", ICML
    2021. For linear heads the ensemble Σ p_k W_kᵀ z̃ is W̄ᵀ z̃, so the server needs the average
    alone. Labels are drawn from the pooled class counts. G has two layers; Adam's moments stay at
    the server. With λ = 0 it is FedAvg.
    """

    name = "fedgen"
    settings_class = FedGenSettings
    preset: ClassVar = {"generator_steps": 1000}

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        s, net = self.settings, self.network
        self.generator = DenseLayers(
            (s.noise + net.widths[-1], s.generator_hidden, net.widths[-2]), bias=True
        )
        self.pooled = self.clients.counts.sum(axis=0)
        self.streams: dict[int, np.random.Philox] = {}  # of each client, for an epoch

    def begin(self, weights: Tensor) -> None:
        seed = self.settings.seed + 2**32  # a start that differs from the network's
        omega = first_weights(self.generator, seed, weights.dtype)
        zeros = omega.new_zeros(omega.shape)
        self.memory |= {"omega": omega, "mean": zeros, "square": zeros.clone()}

    def drawn(
        self, round: int, clients: Sequence[int], epoch: int, number: int
    ) -> dict[str, Tensor]:
        """A batch of generated features beside each batch of rows."""
        import torch

        from .streams import Purpose, stream

        if not self.settings.weight:
            return {}
        for k in clients if number == 0 else ():  # each goes on from step to step of an epoch
            key = self.clients.keys[k]
            self.streams[k] = stream(self.settings.seed, Purpose.GENERATED, round, key, epoch)
        words = [self.streams[k] for k in clients]
        y, inputs = self.noise(words, self.settings.batch_size or BATCH)
        model = self.generator.model(self.memory["omega"])
        made = torch.stack([self.generator.forward(model, one)[1] for one in inputs])
        return {"labels": y, "generated": made}

    def term(self, model: Model, rows: Rows, given: Mapping[str, Tensor]) -> Tensor | float:
        from torch.nn.functional import cross_entropy, linear

        if not given:
            return 0.0
        scores = linear(given["generated"], *self.network.layers(model)[-1])
        return self.settings.weight * cross_entropy(scores, given["labels"])

    def merge(self, round: int, who: Sequence[int], start: Tensor, theta: Tensor) -> Tensor:
        from .streams import Purpose, stream

        merged = super().merge(round, who, start, theta)
        words = stream(self.settings.seed, Purpose.GENERATOR, round)
        for number in range(self.settings.generator_steps):
            count = (round - 1) * self.settings.generator_steps + number + 1
            self._adam(self._slope(words, merged), count)
        return merged

    def _slope(self, words: np.random.Philox, weights: Tensor) -> Tensor:
        """Gradient in ω (P_G,) of the cross-entropy of the last layer on generated features."""
        from torch.func import grad
        from torch.nn.functional import cross_entropy, linear

        top = self.network.layers(self.network.model(weights))[-1]
        (y,), (drawn,) = self.noise([words], self.settings.batch_size or BATCH)

        def loss(omega: Tensor) -> Tensor:
            _, z = self.generator.forward(self.generator.model(omega), drawn)
            return cross_entropy(linear(z, *top), y)

        return grad(loss)(self.memory["omega"])

    def _adam(self, slope: Tensor, count: int) -> None:
        """Kingma and Ba, "Adam: a method for stochastic optimization", ICLR 2015; 0.9, 0.999."""
        m, v = self.memory["mean"], self.memory["square"]
        m.mul_(0.9).add_(slope, alpha=0.1)
        v.mul_(0.999).addcmul_(slope, slope, value=0.001)
        root = (v / (1 - 0.999**count)).sqrt_().add_(1e-8)
        self.memory["omega"].addcdiv_(m, root, value=-self.settings.generator_lr / (1 - 0.9**count))

    def noise(self, streams: Sequence[np.random.Philox], rows: int) -> tuple[Tensor, Tensor]:
        """Labels (A, B) and the generator's input, noise beside one-hot labels (A, B, ·)."""
        import numpy as np
        import torch

        from .streams import choice, normal

        dtype = self.memory["omega"].dtype
        kind = np.float64 if dtype == torch.float64 else np.float32
        draws = []
        for words in streams:
            y = choice(words, rows, self.pooled)
            noise = normal(words, (rows, self.settings.noise), kind)
            draws.append((y, np.hstack([noise, np.eye(len(self.pooled), dtype=kind)[y]])))
        ys, inputs = zip(*draws, strict=True)
        return torch.from_numpy(np.stack(ys)), torch.from_numpy(np.stack(inputs))

    def upload(self, round: int) -> int:
        return self.network.size + (self.network.widths[-1] if round == 1 else 0)

    def download(self, round: int) -> int:
        return self.network.size + self.generator.size
