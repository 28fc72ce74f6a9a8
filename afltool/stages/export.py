"""Stage `export`: a solved head, with or without its network → a file that runs elsewhere."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import MismatchError
from ..exporting import get_format
from ..exporting.card import card
from ..files.atomic import write_bytes, write_text
from ..files.evaluations import OfHead, read_evaluation
from ..files.heads import HeadFile, load_solved_head
from ..files.recipes import FOR_PEOPLE, Target
from ..options.evaluation import Export
from ..plugins import require_torch
from ..progress import log
from .runner import Files, Job, StageFunction

if TYPE_CHECKING:
    from ..exporting.build import Model
    from ..exporting.trial import VerificationResult


@StageFunction
def export(o: Export, files: Files) -> Job:
    """Write a solved head as .onnx or .pt2, by the name of the file.

    The file takes float32 features, or with ``with_backbone`` uint8 pictures (n, h, w, 3), and
    gives scores, the predicted class and, where the head defines them, probabilities. It is first
    run on a sample: a difference from afltool's own scores beyond the tolerance is a
    `NumericalError`. ``card`` writes a model card beside it, with the figures of ``metrics``.
    """
    require_torch("export")
    get_format(o.out)
    of_head = load_solved_head(o.head)
    evaluation = None if o.metrics is None else read_evaluation(o.metrics, OfHead)
    digest = of_head.header["digest"]
    if evaluation is not None and evaluation["head"]["digest"] != digest:
        raise MismatchError(
            f"{o.metrics} is the evaluation of another head, {evaluation['head']['digest']}; "
            f"{o.head} has the digest {digest}"
        )
    outputs = (o.out,) if o.card is None else (o.card, o.out)

    def compute(todo: Sequence[Target]) -> None:
        data, model, trial = _pack(of_head, o)
        if o.card is not None:
            facts = {
                "Name": o.out.name,
                "Bytes": len(data),
                "SHA-256": hashlib.sha256(data).hexdigest(),
                "Checked": f"run on {trial.rows} sample rows; scores differ from afltool's by at "
                f"most {trial.tolerance:g} of a row's largest score",
            }
            write_text(card(model.metadata, of_head.report, facts, evaluation), o.card, o.overwrite)
        write_bytes(data, o.out, o.overwrite)
        log.info(
            "export: %d sample rows agree with afltool's scores; the largest difference is %.2g of "
            "a row's largest score (tolerance %g)", trial.rows, trial.largest, trial.tolerance,
        )  # fmt: skip

    return Job([Target(path, FOR_PEOPLE) for path in outputs], compute)


def _pack(of_head: HeadFile, o: Export) -> tuple[bytes, Model, VerificationResult]:
    """The file's bytes, what is in it, and how it was tried."""
    from ..exporting import build, trial

    (head, header), packer = of_head, get_format(o.out)
    bits = header["space"]["fraction_bits"]
    if not o.with_backbone:
        model = build.build_from_features(head, header)
        data, x = packer.pack(model), trial.sample_rows(head, bits)
        answers = packer.run(data, model, x)
        return data, model, trial.compare(head, bits, x, answers, str(o.out))
    from ..exporting import pictures

    network = pictures.network_in_fp32(o.head, header, o.weights, o.seed)
    model = pictures.build_from_images(head, header, network)
    data = packer.pack(model)
    return data, model, pictures.compare_on_images(packer, data, model, network, head, bits, o.out)
