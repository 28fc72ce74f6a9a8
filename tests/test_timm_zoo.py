"""Every module of timm: one network of random weights is a backbone, or its refusal says why."""

from __future__ import annotations

import re

import pytest

from afltool.backbones.models import load_backbone
from afltool.errors import AflError

timm = pytest.importorskip("timm")

MOST_REFUSED = 40  # of the names of pretrained networks, 1,826 in timm 1.0.31
#: Words for small networks in timm's names, the smallest first.
SMALL = "test zepto atto femto pico nano xxxs xxs micro xxtiny mini xs tiny t xsmall small lite s"


def size(name):
    """What sorts the smaller ones of a module's networks first, by their names."""
    words = [SMALL.split().index(w) for w in re.findall("[a-z]+", name) if w in SMALL.split()]
    return min(words, default=99), [int(n) for n in re.findall(r"\d+", name)[:1]], len(name), name


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of timm's modules about themselves
def test_nearly_every_pretrained_network_is_of_a_module_that_makes_features():
    refused, names_in_all = [], 0
    for module in timm.list_modules():
        names = timm.list_models(module=module, pretrained=True)
        names_in_all += len(names)
        if not names:
            continue
        name = min(names, key=lambda one: size(one.partition(".")[0]))
        side = timm.models.get_pretrained_cfg(name).input_size[-1]
        try:
            backbone = load_backbone(f"timm:{name}", weights="random", image_size=side)
            assert backbone.dim > 1
        except AflError as error:
            refused.append((len(names), f"{module} ({len(names)} names): {error}"))
    print(*(line for _, line in refused), sep="\n")
    assert names_in_all > 1500, "the premise: this is timm's zoo"
    assert sum(n for n, _ in refused) <= MOST_REFUSED, "\n".join(line for _, line in refused)
