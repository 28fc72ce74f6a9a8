"""Gradient rivals and analytic heads on the same features and partitions, as one table.

    python examples/rivals.py OUT TRAIN.h5 TEST.h5                        500 rounds, 3 seeds: hours
    python examples/rivals.py OUT TRAIN.h5 TEST.h5 --rounds 50 --seeds 1  minutes

Rows are dealt by a Dirichlet distribution (α = 0.1, 100 clients). A tenth of the clients is held
out and trains nothing, neither for a rival nor for a head. Every rival runs at the papers' learning
rate and at the one of seven that the held-out clients choose (once, with seed 0); its accuracies
are those of the last round, of the round that held-out clients like best, and of the best round on
the test rows, which is the papers' rule. Held-out clients also choose the analytic heads' ridge,
layers and rounds. A seed is that of the partition and of all that is drawn.

MB up: what one client sends, a head's as files (the mean of up to three clients'; of fewer than 20
clients a bound), a rival's as float32.

Every cell is a run folder in OUT/runs, so the table can be stopped, gone on with, and made in
pieces (--only TEXT; --table makes it from what is there). OUT/rivals.csv has every cell,
OUT/rivals.md the table.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import afltool
from afltool.errors import NumericalError

Options = dict[str, Any]

# Name in the table, name of the method, what differs from the papers' preset.
RIVALS: list[tuple[str, str, Options]] = [
    ("FedAvg", "fedavg", {}),
    ("FedProx", "fedprox", {}),
    ("FedGen", "fedgen", {"generator_steps": 50}),
    ("FedDyn", "feddyn", {}),
    ("FedNTD", "fedntd", {}),
    ("FedDisco", "feddisco", {}),
    ("FedAWA", "fedawa", {}),
    ("64 hidden: FedAvg", "fedavg", {"hidden": 64}),
    ("64 hidden: MOON", "moon", {"hidden": 64}),
    ("FedLPA", "fedlpa", {}),
    ("FedFisher", "fedfisher", {}),
    ("local only", "local", {}),
    ("centralized", "centralized", {}),
]
HEADS: list[tuple[str, str, Options]] = [
    ("AFL", "linear", {"ridge": "0.1:10000:6"}),
    ("DeepAFL, T = 20", "deepafl", {"layers": 20}),
    ("SAFLe", "safle", {"experts": 512, "group_size": 3, "ridge": "100:10000:5"}),
    ("softmax head", "softmax", {}),
    ("nearest mean", "discriminant", {"rule": "nearest-mean"}),
    ("LDA, shrinkage 0.05", "discriminant", {"rule": "lda", "shrinkage": 0.05}),
    ("naive Bayes", "discriminant", {"rule": "naive-bayes"}),
    ("FedCGS, shrinkage 0.05", "discriminant", {"rule": "fedcgs", "shrinkage": 0.05}),
    ("Fed3R", "discriminant", {"rule": "fed3r"}),
]
ONE_SHOT = ("fedlpa", "fedfisher")
RATES = ("papers'", "chosen")
TRIED = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # multiples of the papers' rate
SHOWN = {
    "last": "last round",
    "held_out": "by held-out clients",
    "best_on_test": "best on test rows (papers' rule)",
}


@dataclass(frozen=True)
class Plan:
    """What all cells share."""

    out: Path
    train: Path
    test: Path
    rounds: int
    lr_rounds: int
    seeds: int
    clients: int
    alpha: float

    def partition(self, seed: int) -> Path:
        return afltool.partition(
            self.train, self.out / f"clients-{seed}.h5", scheme="dirichlet", alpha=self.alpha,
            clients=self.clients, seed=seed, held_out=0.1,
        )  # fmt: skip

    def cell(self, *parts: object) -> Path:
        name = "-".join(str(part) for part in parts)
        return self.out / "runs" / "".join(c if c.isalnum() or c in "-." else "_" for c in name)


# ---------------------------------------------------------------- rivals


def rival(plan: Plan, title: str, method: str, given: Options, rate: str, seed: int) -> Path:
    """The run folder of one rival at the papers' rate or at the chosen one."""
    settings = {**given, "seed": seed}
    if method not in ONE_SHOT:
        settings["rounds"] = plan.rounds
    if method == "local":
        settings["every"] = plan.rounds  # all clients' heads are measured at the end alone
    preset = "deepafl" if method in ("fedlpa", "fedawa") else "afl"

    def made(name: object, **more: Any) -> Path:
        return afltool.baseline(
            method, plan.train, plan.cell(title, name, seed), partition=plan.partition(seed),
            test=plan.test, preset=preset, settings={**settings, **more},
        )  # fmt: skip

    if rate == "chosen" and seed:
        return made(rate, lr=read(plan.cell(title, rate, 0) / "summary.json")["settings"]["lr"])
    return made(rate, lr=chosen_rate(plan, method, made)) if rate == "chosen" else made(rate)


def chosen_rate(plan: Plan, method: str, made: Callable[..., Path]) -> float:
    """The rate with the best accuracy on held-out clients; of equal ones the smallest."""
    rounds = 1 if method in ONE_SHOT else plan.lr_rounds
    short = {"rounds": rounds, "every": 1}
    papers = read(made("papers'") / "summary.json")["settings"]["lr"]
    found = {}
    for rate in (float(f"{share * papers:.2g}") for share in TRIED):
        with suppress(NumericalError):  # it diverges
            told = read(made(f"rate {rate:g}", lr=rate, **short) / "summary.json")["accuracies"]
            found[rate] = told["best_by_held_out_clients"]["held_out_top1"]
    return max(found, key=lambda rate: (found[rate], -rate))


def row_of_rival(title: str, rate: str, seed: int, folder: Path) -> dict[str, Any]:
    found = read(folder / "summary.json")
    told = found["accuracies"]
    return {
        "method": title, "rate": rate, "lr": found["settings"]["lr"], "seed": seed,
        "last": told["last_round"]["top1"],
        "held_out": told["best_by_held_out_clients"]["top1"],
        "best_on_test": told["best_on_test_rows"]["top1"],
        "largest": told["last_round"].get("top1_max"), "rounds": len(found["rounds"]),
        "megabytes_up": found["upload_bytes"] / 1e6,
        "megabytes_down": found["download_bytes"] / 1e6,
        "client_seconds": found["client_seconds"], "server_seconds": found["server_seconds"],
    }  # fmt: skip


# ---------------------------------------------------------------- analytic heads


def analytic(plan: Plan, title: str, name: str, options: Options, seed: int) -> Path:
    """result.json of one head: solved from the same clients, tuned by the held-out ones."""
    place = plan.cell(title, seed) / "result.json"
    if place.exists():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    seeded = {"seed": seed} if name in ("deepafl", "safle") else {}
    clients, uploads, downloads, gathering, solving = plan.partition(seed), 0, 0, 0.0, 0.0
    head = afltool.head(name, place.parent / "head-0.h5", head_options={**options, **seeded})
    rounds = 0
    while afltool.info(head)["phase"] is not None:
        rounds += 1
        total, held = (place.parent / f"{what}-{rounds}.h5" for what in ("total", "held"))
        begun = time.process_time()
        afltool.local_stats(plan.train, head, total, partition=clients, sum=True, held_out=held)
        between = time.process_time()
        head = afltool.solve(total, place.parent / f"head-{rounds}.h5", head=head, validate=held)
        solving += time.process_time() - between
        gathering += between - begun
        told = afltool.info(total)
        weighed = told["provenance"].get("client_files", [told["payload_bytes"]])
        uploads += sum(weighed) / len(weighed)
        phases = afltool.info(head)["report"].get("phases", [{}])
        downloads += phases[-1].get("download_bytes", 0)
        for spent in (total, held):
            spent.unlink()
    top1 = afltool.evaluate(head, plan.test)["top1"]
    found = {
        "top1": top1, "rounds": rounds, "upload_bytes": uploads, "download_bytes": downloads,
        "client_seconds": gathering, "server_seconds": solving,
    }  # fmt: skip
    place.write_text(json.dumps(found))
    for spent in place.parent.glob("head-*.h5"):
        spent.unlink()
    return place


def row_of_head(title: str, seed: int, place: Path) -> dict[str, Any]:
    found = read(place)
    return {
        "method": title, "rate": "–", "lr": None, "seed": seed, "last": found["top1"],
        "held_out": found["top1"], "rounds": found["rounds"],
        "megabytes_up": found["upload_bytes"] / 1e6,
        "megabytes_down": found["download_bytes"] / 1e6,
        "client_seconds": found["client_seconds"], "server_seconds": found["server_seconds"],
    }  # fmt: skip


# ---------------------------------------------------------------- all cells, the table


def cells(plan: Plan, only: str, rates: Sequence[str], make: bool) -> Iterator[dict[str, Any]]:
    """A row for each cell: made where it is not there, unless ``make`` is off."""
    for title, name, options in HEADS:
        for seed in range(plan.seeds):
            place = plan.cell(title, seed) / "result.json"
            if make and title.startswith(only):
                place = analytic(plan, title, name, options, seed)
            if place.exists():
                yield row_of_head(title, seed, place)
    for title, method, given in RIVALS:
        for rate in RATES:
            for seed in range(plan.seeds):
                folder = plan.cell(title, rate, seed)
                if make and title.startswith(only) and rate in rates:
                    folder = rival(plan, title, method, given, rate, seed)
                if (folder / "head.h5").exists():
                    yield row_of_rival(title, rate, seed, folder)


def table(rows: pd.DataFrame) -> str:
    """Markdown: means over seeds, and the spread (standard deviation) where there are several."""
    names = ["method", "η", *SHOWN.values(), "rounds", "MB up", "MB down"]
    names += ["client s", "server s"]
    lines = [f"| {' | '.join(names)} |", "| --- " * len(names) + "|"]
    for (title, rate), group in rows.groupby(["method", "rate"], sort=False):
        lr = "" if group.lr.isna().all() else f"{rate} {group.lr.iloc[0]:g}"
        cells = [
            title, lr, *(shown(group, key) for key in SHOWN),
            f"{group.rounds.mean():.0f}", f"{group.megabytes_up.mean():.3g}",
            f"{group.megabytes_down.mean():.3g}", f"{group.client_seconds.mean():.0f}",
            f"{group.server_seconds.mean():.1f}",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def shown(group: pd.DataFrame, key: str) -> str:
    values = 100 * group[key].dropna() if key in group else pd.Series(dtype=float)
    if not len(values):
        return ""
    spread = f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else ""
    return f"{values.mean():.2f}{spread}"


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--lr-rounds", type=int, help="rounds of each rate tried (a tenth)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--alpha", type=float, default=0.1)
    parser.add_argument("--only", default="", help="methods whose title begins with this text")
    parser.add_argument("--rates", nargs="+", choices=RATES, default=RATES, help="of rivals")
    parser.add_argument("--table", action="store_true", help="of the cells that are there")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    lr_rounds = given.lr_rounds or max(1, given.rounds // 10)
    plan = Plan(given.out, given.train, given.test, given.rounds, lr_rounds, given.seeds,
                given.clients, given.alpha)  # fmt: skip
    rows = []
    for row in cells(plan, given.only, given.rates, make=not given.table):
        rows.append(row)
        lr = "" if row["lr"] is None else f" at η {row['lr']:g}"
        print(f"{row['method']}{lr}, seed {row['seed']}: {row['last']:.2%}", flush=True)
    if not rows:
        sys.exit(f"no cell is made in {given.out} yet")
    frame = pd.DataFrame(rows)
    given.out.mkdir(parents=True, exist_ok=True)
    frame.to_csv(given.out / "rivals.csv", index=False)
    (given.out / "rivals.md").write_text(table(frame))
    print(table(frame))


if __name__ == "__main__":
    main()
