"""Commands and options that are no more, with what stands in their place."""

from __future__ import annotations

_SESSION = "gone: a session does it, see afltool session new, serve and join"
_SCALED = "gone: solve makes the scaling of a total of what scale wrote"
_VARIANTS = "--variant", "--distance", "--weight-start", "--weight-step", "--fisher"
_OF_CODES = ("bucketing", "buckets", "experts", "group-size", "thresholds")
_CODES = "gone: softmax takes raw or random features; codes are those of head safle"
_RATES = "gone: choose rates by an axis of a study, or as examples/rivals.py does"
#: Old command, or old option, or command and option → what stands in its place.
RENAMED: dict[str, str] = {
    "check-plugin": "gone: pytest tests a plug-in, with the checks of afltool.testing",
    "head evaluation": "gone: evaluate --counts; in a session, session new --evaluate",
    "keys lock": "gone: keys new --passphrase-file",
    "plot coverage": "gone: afltool.read_counts(FILE).heads[0].confidence has the rows by bins",
    "plot ridge-path": "gone: afltool info HEAD --field report.ridge_path has its points",
    "plot roc": "gone: evaluate --metrics auc -o FILE has the points of each curve",
    "session urls": "gone: sites share a directory, sftp://, s3:// or webdav://",
    **dict.fromkeys(("roster", "mask", "session countersign"), _SESSION),
    **dict.fromkeys(("--roster", "--mask", "--sign", "--offers", "--reveal", "--again"), _SESSION),
    **dict.fromkeys(("--dp-epsilon", "--dp-delta", "--clip"), _SESSION),
    **dict.fromkeys(("scale --from", "scale --method", "scale --bins"), _SCALED),
    **dict.fromkeys(("--lr-rounds", "--stack"), _RATES),
    **dict.fromkeys(
        (*_VARIANTS, "--tolerance", "--iterations"),
        "gone: a baseline has the one form of its paper",
    ),
    "--cache": "gone: afltool run keeps the rows of a round in memory for the next",
    "aggregate --add": "gone: list the files, afltool aggregate FILES",
    "head safle --gamma": "gone: its sums hold no γ, and the pairwise law takes grams alone",
    "--label-smoothing": "gone: targets of the softmax head are one-hot",
    "--linear-ridge": "gone: the raw features of a hybrid have ridge 1",
    "--projection": "gone: random weights and bias are uniform on ±1/√fan-in",
    "head softmax --standardise": "gone: scale features first, afltool scale",
    **dict.fromkeys((f"head softmax --{one}" for one in _OF_CODES), _CODES),
    "--patience": "gone: all rounds are gone through, and held-out clients choose the best",
    "--tolerance": "gone: give the number of --rounds",
    "--space": "gone: aggregate refuses statistics of other features or classes",
    "local-stats --by": "gone: evaluate --counts --group-by counts rows by group",
    "import --features": "renamed: --feature-columns",
    **dict.fromkeys(
        ("evaluate --confusion", "evaluate --rounds"), "gone: evaluate -o has it as JSON"
    ),
    "info --all": "gone: info --json",
    "verify --keep-going": "gone: call verify for each file",
    "--number": "gone: counts are of one head",
    "evaluate --train": "gone: call evaluate for each file; run has --train-accuracy",
    "evaluate --earlier": "gone: call evaluate for each head; run evaluates each round itself",
    "evaluate --beside": "gone: call evaluate --counts for each head",
    "partition --describe": "gone: afltool info PARTITION",
    "session join --features": "renamed: --data",
    "slurm --print": "renamed: --dry-run",
    "plot --number": "gone: counts are of one head",
    "predict --on-error": "gone: an image that cannot be used ends it; leave the image out",
    "study --check": "gone: solve a total of a cell again, afltool solve",
    "study --most": "gone: a study has up to 10,000 cells",
    "study --prepare": "gone: afltool extract puts features into the store",
    "study --print": "gone: afltool report has the command of each cell; --jobs runs several",
    "table --test": "gone: evaluate --against has McNemar's test; --format csv has all numbers",
    "report --test": "gone: evaluate --against has McNemar's test",
    "table --stat": "gone: mean ± standard deviation over seeds; --format csv has all numbers",
    "report --stat": "gone: mean ± standard deviation over seeds",
    "--keep-rounds": "gone: a study keeps the last round of a cell; remove others of a run by hand",
    "--balance-cap": "gone: partition --scheme dirichlet --min-size N draws again instead",
    "--batch-size": "gone: a step of each engine has its own size, whatever the memory",
    "--workers": "gone: the threads of --threads decode, too",
    "--list-nodes": "gone: extract --node ? names the layers of a network",
    "--checksums": "gone: CIFAR is compared with torchvision's; read others by imagefolder:",
    "--fan-in": "gone: one task adds up the sums of all parts",
    "--json": "gone: afltool info FILE --json says what is in a file",
    "--formulas": "gone: CSV has texts as they are; a spreadsheet imports columns as text",
    "--label-column": "renamed: --y",
    "--path-column": "gone: call the column of paths path",
    "--plain": "gone: extract --engine torch is the nearest",
    "--single-round": "gone: head random-features solves in one round",
    **dict.fromkeys(("--lbfgs", "--no-momentum"), "gone: the softmax head goes on by momentum"),
    "--summary": "gone: --events - has exit code and seconds",
    "--licence": "renamed: --license",
    "--standardise": "renamed: --standardize",
    "--unlabelled": "renamed: --unlabeled",
    "baseline centralised": "renamed: baseline centralized",
    "evaluate --by": "renamed: --group-by",
    "evaluate --group": "renamed: --resample-by",
    "evaluate --samples": "renamed: --bootstrap-samples",
    "predict --per-class": "renamed: --class-conditional",
    "session join --by": "renamed: --group-by",
    "split --test": "renamed: --test-size",
}


def instead_of(option: str) -> str | None:
    """What stands in the place of an option of every command, such as 'fan_in' or 'fan-in'."""
    return RENAMED.get("--" + option.replace("_", "-"))
