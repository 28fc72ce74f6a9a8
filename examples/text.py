"""Not images: text embeddings made elsewhere, from an .npz to a federated classifier.

python examples/text.py [FOLDER]

The texts are real and on every machine: the docstrings of Python's standard library, to be sorted
into six subjects by what they say. The embeddings are not afltool's: TF-IDF of words and pairs of
words, reduced to 256 numbers (latent semantic analysis, scikit-learn), fitted on the training
texts. Any sentence encoder would do instead: save its output as x, the labels as y, and import the
file. Each module of the library is one client, so clients differ in subject, size and vocabulary;
the test texts are other docstrings of the same modules.
"""

from __future__ import annotations

import ast
import hashlib
import sys
import sysconfig
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

import afltool

SUBJECTS = {
    "concurrency": "asyncio concurrent multiprocessing threading queue sched subprocess selectors",
    "files": "tarfile zipfile shutil pathlib tempfile gzip bz2 lzma fileinput glob os io mailbox",
    "language": "ast dis tokenize inspect typing dataclasses importlib pickle copy types enum",
    "networking": "http urllib email smtplib ftplib imaplib poplib socket socketserver ssl xmlrpc",
    "numbers": "statistics fractions decimal _pydecimal random datetime _pydatetime calendar "
    "heapq bisect numbers ipaddress colorsys",
    "testing": "unittest doctest pdb bdb trace profile cProfile pstats timeit traceback logging",
}
SHORTEST = 30  # characters of a docstring that says something
DIMENSIONS = 256


def docstrings() -> pd.DataFrame:
    """Every documented module, class and function: row, subject, module, text."""
    library, rows = Path(sysconfig.get_paths()["stdlib"]), []
    for subject, modules in SUBJECTS.items():
        for module in modules.split():
            files = [library / f"{module}.py", *sorted((library / module).rglob("*.py"))]
            for file in (f for f in files if f.is_file() and "test" not in f.parent.parts):
                for node, text in documented(file):
                    where = file.relative_to(library).as_posix()
                    rows.append((f"{where}:{node}", subject, module, text))
    return pd.DataFrame(rows, columns=["row", "subject", "module", "text"])


def documented(file: Path) -> list[tuple[str, str]]:
    """(line and name, docstring) of what a source file documents; nothing is imported."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = []
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        text = ast.get_docstring(node) if isinstance(node, kinds) else None
        if text and len(text) >= SHORTEST:
            found.append((f"{getattr(node, 'lineno', 0)}-{getattr(node, 'name', '')}", text))
    return found


def embed(texts: pd.DataFrame, is_test: np.ndarray) -> np.ndarray:
    """(n, 256) float32 of length 1; the test texts take no part in the fit."""
    words = TfidfVectorizer(sublinear_tf=True, min_df=2, ngram_range=(1, 2), stop_words="english")
    reduce = TruncatedSVD(DIMENSIONS, random_state=0)
    encoder = make_pipeline(words, reduce, Normalizer()).fit(texts.text[~is_test])
    return encoder.transform(texts.text).astype(np.float32)


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "text-output")
    folder.mkdir(parents=True, exist_ok=True)
    texts = docstrings().drop_duplicates("text").reset_index(drop=True)
    # Every fifth text is a test text, by a hash of it: the same in every version that has it.
    is_test = np.array([hashlib.sha256(t.encode()).digest()[0] % 5 == 0 for t in texts.text])
    x, names = embed(texts, is_test), sorted(SUBJECTS)
    files = {}
    for split, chosen in (("train", ~is_test), ("test", is_test)):
        part = texts[chosen]
        numbers = np.array([names.index(subject) for subject in part.subject])
        np.savez(folder / f"{split}.npz", x=x[chosen], y=numbers, row_ids=part.row.to_numpy(str))
        files[split] = afltool.import_embeddings(
            folder / f"{split}.npz", folder / f"{split}.h5", classes=names, fraction_bits=12,
            backbone="tf-idf-svd-256", overwrite=True,
        )  # fmt: skip
    texts[~is_test][["row", "module"]].to_csv(folder / "modules.csv", index=False)
    clients = afltool.partition(
        files["train"], folder / "clients.h5", scheme="by-attribute", table=folder / "modules.csv",
        column="module", overwrite=True,
    )  # fmt: skip
    total = afltool.local_stats(files["train"], "linear", folder / "total.h5", partition=clients,
                                sum=True, overwrite=True)  # fmt: skip
    head = afltool.solve(total, folder / "head.h5", overwrite=True, head_options={"ridge": "auto"})
    found = afltool.evaluate(head, files["test"])
    largest = Counter(texts.subject[is_test]).most_common(1)[0][1] / is_test.sum()
    print(
        f"top-1 {found['top1']:.1%} of {found['n']} docstrings, 6 subjects (always the largest: "
        f"{largest:.1%}); {len(set(texts.module[~is_test]))} clients, {(~is_test).sum()} texts"
    )


if __name__ == "__main__":
    main()
