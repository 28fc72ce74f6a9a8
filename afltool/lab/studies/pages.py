"""Pages: one HTML file that asks no network, of a study, a run, a baseline or a finished trial.

The page's own rules (its content security policy) forbid every request. All text from outside is
escaped by the templates beside this module.
"""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import stdev
from typing import Any

import numpy as np

from ...errors import CorruptFileError, InputError, UsageError
from ...files.atomic import write_text
from ...files.counts import Counts, evaluations, read_counts
from ...files.evaluations import figure_label, figure_text
from ...files.hdf5 import read_header
from ...files.outputs import check_output
from ...files.schema import SUMMARY
from ...inputs import read_json
from ...options.look import Picture
from ...rendering.classes import plot_confusion
from ...rendering.curves import plot_reliability
from ...runs.folder import RunFolder
from ...stages.plot import plot
from ...values.names import COUNTS
from ...values.text import escape_line
from .cells import StudyFolder, line
from .options import FIGURES, Report, TableOptions, parse_names, parse_numbers, refuse_options
from .plots import are_numbers, compute_points, get_line_options, plot_series, words
from .published import options_in
from .result_table import ResultTable
from .results import Results, is_whole, load_results
from .tables import SHARED, chosen, frame, make_table, resolve_options, varied_options

Found = dict[str, Any]
Headers = dict[Path, Found]
Drawn = tuple[str, str]  # what a picture shows, and the picture
MANY = 30  # classes whose confusion is drawn
LISTED = 1000  # classes whose figures are on the page


def report(o: Report) -> Path:
    """Write the page of a study, a run, a baseline or a trial: an HTML file; returns it."""
    root, out = o.study, o.out
    if out.suffix not in (".html", ".htm"):
        raise UsageError(f"{out}: a page is an .html file; give such a name")
    check_output(out)
    if StudyFolder.is_one(root) or not any(root.rglob("*.h5")):
        template, facts = "study.html", study_page(load_results(root), o.to(TableOptions))
    else:
        refuse_options(o.to(TableOptions), f"{root} is no study")
        is_run = (root / SUMMARY).is_file()
        template, facts = (
            ("run.html", run_page(root)) if is_run else ("trial.html", session_page(root))
        )
    page = templates().get_template(template).render(**facts)
    return write_text(page, out, o.overwrite)


def templates() -> Any:
    """The templates beside this module, which escape what they are given."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    def printable(value: Any) -> Any:  # what is HTML already stays as it is
        return value if hasattr(value, "__html__") else escape_line(value)

    how: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "undefined": StrictUndefined}
    loader = FileSystemLoader(Path(__file__).parent)
    made = Environment(loader=loader, autoescape=True, finalize=printable, **how)
    made.filters |= {"figure": figure_text, "label": figure_label, "line": line, "stdev": stdev}
    return made


def picture(draw: Callable[[Path], object]) -> str:
    """What ``draw`` draws into a file, as the page has it."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch) / "p.svg"
        draw(place)
        return base64.b64encode(place.read_bytes()).decode("ascii")


# ---------------------------------------------------------------- a study


def study_page(results: Results, options: TableOptions) -> Found:
    study, asked = results.study, resolve_options(results.study, options)
    lines = frame(results, parse_numbers(asked.layers))
    weighed = lines[lines["state"].eq("done")].get("file_bytes")  # else there is only a bound
    sent = "upload_bytes" if weighed is None or weighed.isna().any() else "file_bytes"
    seconds = sum(summary["seconds"] for _, summary in results.done)
    return {
        "title": study.title,
        "shows": study.texts.get("shows", ""),
        "counts": f"{len(results.done)} of {len(study.cells)} cells done, {seconds:.0f} s in all",
        "tables": _tables(results, lines, options, sent),
        "drawn": list(_curves(results, lines, asked, sent)) if results.done else [],
        "results": results,
        "folder": results.folder,
    }


def _tables(results: Results, lines: Any, given: TableOptions, sent: str) -> Iterator[ResultTable]:
    """The study's table, and one of costs, by the options that our cells have."""
    first = make_table(results, given)
    first.title = "Results"
    yield first
    value = resolve_options(results.study, given).value
    if not {"seconds", "file_bytes", "upload_bytes"} & set(parse_names(value)):
        known = set(options_in(lines))
        rows, columns = (
            ",".join(one for one in parse_names(names) if one in known) or None
            for names in (given.rows, given.columns)
        )
        costs = TableOptions(
            rows=rows, columns=columns, value=f"seconds,{sent}", layers=given.layers,
            where=given.where, published="none",
        )  # fmt: skip
        second = make_table(results, costs)
        second.title, second.notes = "Costs", [SHARED]
        yield second


def _curves(results: Results, lines: Any, o: TableOptions, sent: str) -> Iterator[Drawn]:
    """Top-1 against every option of the table that is a number, and against bytes."""
    lines = chosen(lines, o.where)
    names = [*parse_names(o.columns), *parse_names(o.rows), *varied_options(results.study)]
    for x in [*(one for one in dict.fromkeys(names) if one in lines and one != "head"), sent]:
        known = lines[lines["state"].eq("done")].get(x)
        numbers = [] if known is None else known.dropna().tolist()
        if x not in FIGURES and (len(set(map(str, numbers))) < 2 or not are_numbers(numbers)):
            continue
        by = ["head"] if x in FIGURES else get_line_options(lines, x)
        points = compute_points(lines, x, "top1", by)
        if 0 < points["name"].nunique() <= 12:
            yield f"top-1 against {words(x)}", picture(partial(plot_series, points, x, "top1"))


# ---------------------------------------------------------------- a run


def run_page(root: Path) -> Found:
    summary = read_json(root / SUMMARY, "a summary")
    if not is_whole(summary):
        raise CorruptFileError(f"{root / SUMMARY} is not what a run writes: run it again")
    metrics = root / RunFolder.METRICS
    classes = read_json(metrics, "the metrics")["per_class"] if metrics.is_file() else {}
    drawn: list[Drawn] = []
    if summary["rounds"][1:]:
        svg = picture(lambda out: plot(Picture("rounds", (root,), out)))
        drawn.append(("error, accuracy, seconds and bytes of each round", svg))
    if 0 < len(classes) <= MANY:
        svg = picture(lambda out: plot(Picture("confusion", metrics, out)))
        drawn.append(("what it takes for what", svg))
    options = {**summary.get("options", {}), **summary.get("settings", {})}
    return {
        "title": root.resolve().name,
        "shows": f"top-1 {summary['top1']:.2%} of {summary['n']:,} test rows",
        "counts": f"{options.get('head') or summary['method']}, {summary['seconds']:.0f} s",
        "summary": {"stages": [], **summary},
        "classes": [*classes.items()][:LISTED],
        "drawn": drawn,
        "options": options,
        "root": root,
        "toml": root / RunFolder.OPTIONS,
    }


# ---------------------------------------------------------------- a trial


def session_page(root: Path) -> Found:
    """What the page says of the trial in a folder of heads, what members have sent, and totals."""
    every = {path: dict(read_header(path)) for path in sorted(root.rglob("*.h5"))}
    headers = {p: one for p, one in every.items() if one["kind"] in ("statistics", "head")}
    totals = _totals(headers)
    if not totals:
        raise InputError(
            f"{root} holds no study, and no counts of a solved head: write some with afltool "
            "evaluate HEAD FEATURES --counts, and add them up into this folder"
        )
    last, heads = totals[-1], evaluations(totals[-1])
    best = max(heads, key=lambda one: float(one["top1"]))
    which = f"head {heads.index(best)}, the best of {len(heads)}," if heads[1:] else "the head"
    sent = sorted(
        (*one["clients"]["names"], path)
        for path, one in headers.items()
        if len(one.get("clients", {}).get("names", [])) == 1
    )
    size = {path: f"{path.stat().st_size:,}" for path in headers}
    return {
        "title": f"Trial {root.resolve().name}",
        "shows": f"Of 100 rows like those that were counted here {which} predicts about "
        f"{100 * best['top1']:.0f} right: accuracy {figure_text(best['metrics']['accuracy'])}.",
        "counts": f"{len(last.statistics.clients)} members, {last.rows:,} rows, "
        f"{len(last.classes)} classes",
        "totals": [_total(headers, sent, total) for total in totals],
        "listed": LISTED,
        "sent": [(name, headers[path]["phase"], size[path]) for name, path in sent],
        "files": [(path, one["kind"], size[path], one["digest"]) for path, one in headers.items()],
    }


def _get_counted_head(header: Found) -> str:
    """The digest of the head whose rows are counted; '' of other files."""
    is_count = header["kind"] == "statistics" and header["phase"] == COUNTS
    return str(header["context"]["head"]["digest"]) if is_count else ""


def _totals(headers: Headers) -> list[Counts]:
    best: dict[str, tuple[int, Path]] = {}
    for path, header in headers.items():
        if key := _get_counted_head(header):
            number = len(header["clients"]["names"])
            best[key] = max(best.get(key, (0, path)), (number, path))
    return [read_counts(path) for _, path in sorted(best.values())]


def _total(headers: Headers, sent: list[tuple[str, Path]], total: Counts) -> Found:
    """What the page says of a round of evaluation: members, and their accuracies apart."""
    heads, members, shares = evaluations(total), [], []
    for who, client in sorted(total.statistics.clients.items()):
        paths = [path for name, path in sent if name == who.name]
        same = total.statistics.context.head["digest"]
        own = next(
            (read_counts(one) for one in paths if _get_counted_head(headers[one]) == same), None
        )
        text = "–"
        if own is not None and own.rows:
            figure = evaluations(own)[0]["metrics"]["accuracy"]
            shares.append(figure["value"])
            text = figure_text(figure)
        number = "not told" if client.rows is None else f"{client.rows:,}"
        members.append((who.name, number, f"{sum(p.stat().st_size for p in paths):,}", text))
    names = [
        f"{i}: {one['head']['name']} {one['head']['digest'][:8]}" for i, one in enumerate(heads)
    ]
    pairs = zip(heads, names, strict=True)
    return {
        "members": members,
        "shares": shares,
        "names": names,
        "figures": {k: v for one in heads for k, v in one["metrics"].items()},
        "heads": heads,
        "pictures": [
            one for head, name in pairs if head["classes"] for one in _pictures(head, name)
        ],
    }


def _pictures(one: Found, head: str) -> Iterator[Drawn]:
    title = f"head {head}"
    if "reliability" in one:
        note = f"expected calibration error {figure_text(one['metrics']['ece'])}"
        draw = partial(plot_reliability, one["reliability"], title=title, note=note)
        yield f"Head {head}: how often it is right, by how sure it says it is", picture(draw)
    if len(one["classes"]) <= MANY:
        confusion, names = np.array(one["confusion"]), list(one["classes"])
        draw = partial(plot_confusion, confusion, names, title=title)
        yield f"Head {head}: what it takes for what", picture(draw)
