"""The deep analytic network as a PyTorch module."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from ...errors import UsageError
from ...math.gram import LARGEST
from ...math.softmax import exact_weights
from ..graphs import Affine, Drawn, Looked, Tabulated, activated, tensor
from ..projections import projection
from .head import DeepAFLHead
from .layers import ExactOmega, FixedLayers
from .options import ACTIVATED, RESIDUAL


class Layer(nn.Module):
    """Φ_t → Φ_{t+1} = Φ_t + F_t Ω_{t+1}, F_t = σ(Φ_t B_t), with the options' variants."""

    def __init__(self, head: DeepAFLHead, t: int) -> None:
        super().__init__()
        o = head.options
        self.from_phi0, self.no_skip = o.from_phi0, o.no_skip
        self.activation = str(o.activation)
        self.drawn: nn.Module | None = None
        if not o.identity_projection:
            B = projection(o.projection, o.seed, t + 1, *o.widths)
            self.drawn = Drawn(B, self.activation)
        self.omega = nn.Sequential()
        if not o.identity_omega:
            Z, U = head.blocks[t].astype(o.compute)
            self.omega = nn.Sequential(Affine(Z), *([] if U is None else [Affine(U.T)]))

    def forward(self, phi: Tensor, phi0: Tensor) -> Tensor:
        source = phi0 if self.from_phi0 else phi
        hidden = activated(self.activation, source) if self.drawn is None else self.drawn(source)
        moved: Tensor = self.omega(hidden)
        return moved if self.no_skip else phi + moved


class Cascaded(nn.Module):
    """Φ_t → Φ_{t+1} = σ(Φ_t W_t B_t), or σ(Φ_t W_t Q_t B_t) with encoded labels."""

    def __init__(self, head: DeepAFLHead, t: int) -> None:
        super().__init__()
        o, W, network = head.options, head.weights[t], head.layers
        self.fitted, width = nn.Sequential(Affine(W.astype(o.compute))), W.shape[1]
        if o.label_encoding:
            self.fitted.append(Drawn(network.codes(t, width), "none"))
            width = o.widths[1]
        sigma = str(o.activation) if o.deepening == ACTIVATED else "none"
        self.drawn = Drawn(network.projected(t, width), sigma)

    def forward(self, phi: Tensor, phi0: Tensor) -> Tensor:
        hidden: Tensor = self.drawn(self.fitted(phi))
        return hidden


class Deep(nn.Module):
    """σ_0(xA), the layers, ΦW; products in the compute type."""

    def __init__(self, head: DeepAFLHead) -> None:
        super().__init__()
        o, (dim, _) = head.options, head._bound()
        self.dtype = torch.float32 if o.compute == "float32" else torch.float64
        A = projection(o.projection, o.seed, 0, dim, o.widths[0])
        self.first = Drawn(A, str(o.phi0_activation))
        last = len(head.weights) - 1
        layer = Layer if o.deepening == RESIDUAL else Cascaded
        self.layers = nn.ModuleList([layer(head, t) for t in range(last)])
        self.last = Affine(head.weights[last].astype(o.compute))

    def forward(self, x: Tensor) -> Tensor:
        phi0 = phi = self.first(x.to(self.dtype))
        for layer in self.layers:
            phi = layer(phi, phi0)
        scores: Tensor = self.last(phi).double()
        return scores


class FixedLayer(nn.Module):
    """Φ̂_t → Φ̂_{t+1} of whole numbers, and which rows int16 still holds; see `layers`."""

    Z: Tensor
    U: Tensor | None

    def __init__(self, head: DeepAFLHead, network: FixedLayers, t: int) -> None:
        super().__init__()
        o = head.options
        self.from_phi0, self.no_skip, self.learned = o.from_phi0, o.no_skip, not o.identity_omega
        if o.identity_projection:
            self.hidden: nn.Module = Tabulated(str(o.activation), network.bits)
        else:
            self.hidden = Looked(network.random(t + 1, *o.widths, network.bits))
        if self.learned:
            omega = ExactOmega.of(head.blocks[t])
            self.first, self.second = omega.first, omega.second
            self.register_buffer("Z", tensor(omega.Z))
            self.register_buffer("U", None if omega.U is None else tensor(omega.U.T))

    def forward(self, phi: Tensor, phi0: Tensor) -> tuple[Tensor, Tensor]:
        moved, good = self.hidden(phi0 if self.from_phi0 else phi)
        if self.learned:
            moved = torch.round(moved @ self.Z * self.first)
            if self.U is not None:
                moved = torch.round(moved @ self.U * self.second)
        after, fine = held(moved if self.no_skip else phi + moved)
        return after, good & fine


class FixedCascaded(nn.Module):
    """A cascade's layer of whole numbers, and which rows the tables hold; see `layers`."""

    W: Tensor

    def __init__(self, head: DeepAFLHead, network: FixedLayers, t: int) -> None:
        super().__init__()
        learned = head.weights[t]
        W, s = exact_weights(learned, len(learned) * LARGEST)
        self.register_buffer("W", tensor(W))
        self.unit = 2.0**-s
        chain = network.cascaded(t, learned.shape[1])
        self.chain = nn.ModuleList([Looked(one) for one in chain])

    def forward(self, phi: Tensor, phi0: Tensor) -> tuple[Tensor, Tensor]:
        units, good = held(torch.round(phi @ self.W * self.unit))
        for one in self.chain:
            units, fine = one(units)
            good = good & fine
        return units, good


def held(whole: Tensor) -> tuple[Tensor, Tensor]:
    """The numbers that int16 holds, 0 for others, and which rows (n, 1) have no others."""
    within = whole.abs() <= LARGEST
    return torch.where(within, whole, 0.0), within.all(dim=1, keepdim=True)


class FixedDeep(nn.Module):
    """The network in fixed point; a row that afltool refuses has scores NaN."""

    W: Tensor

    def __init__(self, head: DeepAFLHead, network: FixedLayers, bits: int) -> None:
        super().__init__()
        (dim, _), last = head._bound(), len(head.weights) - 1
        self.bits = bits
        self.first = Looked(network.random(0, dim, head.options.widths[0], bits))
        layer = FixedLayer if head.options.deepening == RESIDUAL else FixedCascaded
        self.layers = nn.ModuleList([layer(head, network, t) for t in range(last)])
        W, s = exact_weights(head.weights[last], network.options.widths[0] * LARGEST)
        self.register_buffer("W", tensor(W))
        self.unit = 2.0 ** -(s + network.bits)

    def forward(self, x: Tensor) -> Tensor:
        phi, good = self.first(x * 2.0**self.bits)
        phi0 = phi
        for layer in self.layers:
            phi, fine = layer(phi, phi0)
            good = good & fine
        return torch.where(good, phi @ self.W * self.unit, torch.full((), np.nan).double())


def graph(head: DeepAFLHead, bits: int | None) -> nn.Module:
    """As many layers as the solved head has."""
    if not isinstance(head.layers, FixedLayers):
        return Deep(head)
    if bits is None:
        raise UsageError("--compute fixed needs int16 features; those of this head are float32")
    return FixedDeep(head, head.layers, bits)
