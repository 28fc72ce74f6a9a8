"""The deep analytic network as a PyTorch module; fixed-point features are real numbers in it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..graphs import Affine, Drawn, activated, within
from ..options import FIXED
from ..projections import projection
from .head import DeepAFLHead
from .options import ACTIVATED, RESIDUAL, DeepAFLOptions


def real_type(options: DeepAFLOptions) -> str:
    """The type of products, which are float64 of fixed-point features."""
    return "float64" if options.compute == FIXED else options.compute


class Layer(nn.Module):
    """Φ_t → Φ_{t+1} = Φ_t + F_t Ω_{t+1}, F_t = σ(Φ_t B_t), with the options' variants."""

    def __init__(self, head: DeepAFLHead, t: int) -> None:
        super().__init__()
        o = head.options
        self.from_phi0, self.no_skip, self.bits = o.from_phi0, o.no_skip, o.fixed_bits
        self.activation = str(o.activation)
        self.drawn: nn.Module | None = None
        if not o.identity_projection:
            B = projection(o.projection, o.seed, t + 1, *o.widths)
            self.drawn = Drawn(B, self.activation, self.bits)
        self.omega = nn.Sequential()
        if not o.identity_omega:
            Z, U = head.blocks[t].astype(real_type(o))
            self.omega = nn.Sequential(Affine(Z), *([] if U is None else [Affine(U.T)]))

    def forward(self, phi: Tensor, phi0: Tensor) -> Tensor:
        source = phi0 if self.from_phi0 else phi
        hidden = activated(self.activation, source) if self.drawn is None else self.drawn(source)
        moved: Tensor = self.omega(hidden)
        return within(moved if self.no_skip else phi + moved, self.bits)


class Cascaded(nn.Module):
    """Φ_t → Φ_{t+1} = σ(Φ_t W_t B_t), or σ(Φ_t W_t Q_t B_t) with encoded labels."""

    def __init__(self, head: DeepAFLHead, t: int) -> None:
        super().__init__()
        o, W, network = head.options, head.weights[t], head.layers
        self.fitted, width, self.bits = Affine(W.astype(real_type(o))), W.shape[1], o.fixed_bits
        chain = []
        if o.label_encoding:
            chain, width = [Drawn(network.codes(t, width), "none", self.bits)], o.widths[1]
        sigma = str(o.activation) if o.deepening == ACTIVATED else "none"
        self.drawn = nn.Sequential(*chain, Drawn(network.projected(t, width), sigma, self.bits))

    def forward(self, phi: Tensor, phi0: Tensor) -> Tensor:
        hidden: Tensor = self.drawn(within(self.fitted(phi), self.bits))
        return hidden


class Deep(nn.Module):
    """σ_0(xA), the layers, ΦW; products in the compute type."""

    def __init__(self, head: DeepAFLHead) -> None:
        super().__init__()
        o, (dim, _) = head.options, head._bound()
        self.dtype = torch.float32 if o.compute == "float32" else torch.float64
        A = projection(o.projection, o.seed, 0, dim, o.widths[0])
        self.first = Drawn(A, str(o.phi0_activation), o.fixed_bits)
        last = len(head.weights) - 1
        layer = Layer if o.deepening == RESIDUAL else Cascaded
        self.layers = nn.ModuleList([layer(head, t) for t in range(last)])
        self.last = Affine(head.weights[last].astype(real_type(o)))

    def forward(self, x: Tensor) -> Tensor:
        phi0 = phi = self.first(x.to(self.dtype))
        for layer in self.layers:
            phi = layer(phi, phi0)
        scores: Tensor = self.last(phi).double()
        return scores


def graph(head: DeepAFLHead, bits: int | None) -> nn.Module:
    """As many layers as the solved head has; those of fixed point in real numbers."""
    return Deep(head)
