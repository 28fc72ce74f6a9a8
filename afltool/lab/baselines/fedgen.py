"""FedGen, whose server trains a generator of features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from ...options.base import option
from .base import Method, Rows
from .clients import Purpose, stream
from .network import DenseLayers, Model, Tensor, first_weights
from .settings import Settings

BATCH = 64  # generated rows of a step if the clients take all their rows at once
Words = np.random.Philox


@dataclass(frozen=True, kw_only=True)
class FedGenSettings(Settings):
    """Options of FedGen."""

    weight: float = option(1.0, "λ, the weight of generated features in a client's loss", ge=0)
    noise: int = option(512, "dimension of the generator's noise", ge=1, le=2**16)
    generator_hidden: int = option(512, "hidden width of the generator", ge=1, le=2**16)
    generator_steps: int = option(50, "steps of Adam in a round (PFLlib: 1000)", ge=0, le=10**6)
    generator_lr: float = option(0.005, "Adam's step on the generator", gt=0)


class FedGen(Method):
    """FedGen: the server trains a generator of features; clients also learn from generated
    features.

        server: min_ω E CE(W̄ᵀ z̃, y);   client: F_k(W) + λ E CE(Wᵀ z̃, y),   z = G_ω(noise, one-hot y)

    Zhu, Hong, Zhou, "Data-free knowledge distillation for heterogeneous federated learning", ICML
    2021. For linear heads the ensemble Σ p_k W_kᵀ z̃ is W̄ᵀ z̃, so the server needs the average
    alone. Labels are drawn from the pooled class counts. G has two layers; Adam's moments stay at
    the server. With λ = 0 it is FedAvg.
    """

    settings_class = FedGenSettings
    preset: ClassVar = {"generator_steps": 1000}

    def begin(self, weights: Tensor) -> None:
        from torch.optim import Adam

        s, net = self.settings, self.network
        widths = (s.noise + net.widths[-1], s.generator_hidden, net.widths[-2])
        self.generator = DenseLayers(widths, bias=True)
        seed = s.seed + 2**32  # a start that differs from the network's
        self.omega = first_weights(self.generator, seed, weights.dtype)
        self.adam = Adam([self.omega], lr=s.generator_lr)
        self.pooled = self.clients.counts.sum(axis=0)
        self.streams: dict[int, Words] = {}  # of each client, for an epoch

    def drawn(
        self, round: int, clients: Sequence[int], epoch: int, number: int
    ) -> dict[str, Tensor]:
        """A batch of generated features beside each batch of rows."""
        import torch

        s = self.settings
        if not s.weight:
            return {}
        for k in clients if number == 0 else ():  # each goes on from step to step of an epoch
            key = self.clients.keys[k]
            self.streams[k] = stream(s.seed, Purpose.GENERATED, round, key, epoch)
        y, inputs = self.noise([self.streams[k] for k in clients], s.batch_size or BATCH)
        model = self.generator.model(self.omega)
        made = torch.stack([self.generator.forward(model, one)[1] for one in inputs])
        return {"labels": y, "generated": made}

    def term(self, model: Model, rows: Rows, given: Mapping[str, Tensor]) -> Tensor | float:
        if "generated" not in given:
            return 0.0
        return self.settings.weight * self._entropy(model, given["generated"], given["labels"])

    def _entropy(self, model: Model, z: Tensor, y: Tensor) -> Tensor:
        """The cross-entropy of a classifier's last layer on generated features (B, h)."""
        from torch.nn.functional import cross_entropy, linear

        return cross_entropy(linear(z, *self.network.layers(model)[-1]), y)

    def merge(self, round: int, who: Sequence[int], start: Tensor, theta: Tensor) -> Tensor:
        merged = super().merge(round, who, start, theta)
        words = stream(self.settings.seed, Purpose.GENERATOR, round)
        for _ in range(self.settings.generator_steps):
            self.omega.grad = self.slope(words, merged)
            self.adam.step()
        return merged

    def slope(self, words: Words, weights: Tensor) -> Tensor:
        """Gradient in ω (P_G,) of the cross-entropy of the last layer on generated features."""
        from torch.func import grad

        (y,), (drawn,) = self.noise([words], self.settings.batch_size or BATCH)

        def loss(omega: Tensor) -> Tensor:
            _, z = self.generator.forward(self.generator.model(omega), drawn)
            return self._entropy(self.network.model(weights), z, y)

        return grad(loss)(self.omega)

    def noise(self, streams: Sequence[Words], rows: int) -> tuple[Tensor, Tensor]:
        """Labels (A, B), drawn in proportion to their counts, and the generator's input, noise
        beside one-hot labels (A, B, ·)."""
        import torch

        kind: Any = self.omega.numpy().dtype
        ends, draws = np.cumsum(self.pooled), []
        for words in streams:
            rng = np.random.Generator(words)
            y = np.searchsorted(ends, np.floor(rng.random(rows) * ends[-1]), side="right")
            noise = rng.standard_normal((rows, self.settings.noise), dtype=kind)
            draws.append((y, np.hstack([noise, np.eye(len(ends), dtype=kind)[y]])))
        ys, inputs = zip(*draws, strict=True)
        return torch.from_numpy(np.stack(ys)), torch.from_numpy(np.stack(inputs))

    def upload(self, round: int) -> int:
        return self.network.size + (self.network.widths[-1] if round == 1 else 0)

    def download(self, round: int) -> int:
        return self.network.size + self.generator.size
