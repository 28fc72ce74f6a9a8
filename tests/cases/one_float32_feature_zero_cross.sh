# adapted: no --ridge meant 0 → --ridge 0 (its default is auto now)
# Fault: with one float32 feature the sums XᵀY ("cross") are all zero: a view of a (C, 1) array is
# zeroed as if it were a copy. The head is zero, and nothing says so.
# Right: the scores of least squares, as NumPy has them in float64: W = (XᵀX)⁻¹XᵀY, S = XW.
set -u
wrong() { echo "WRONG: $*"; exit 1; }
run() { "$@" >out.txt 2>err.txt || wrong "could not be tried: $* ended with $?: $(tail -n 1 err.txt)"; }

python - <<'E'
import numpy as np
rng = np.random.default_rng(0)
y = np.arange(600) % 3
x = (rng.normal(size=(600, 1)) + 2 * y[:, None] + 1).astype(np.float32)
np.savez("one.npz", x=x, y=y)
E
run afltool import one.npz --dtype float32 -o one.h5
run afltool head linear --ridge 0 -o head0.h5
run afltool local-stats one.h5 --client a --head head0.h5 -o stats/
run afltool aggregate stats/ -o total.h5
run afltool solve total.h5 -o head.h5
run afltool predict head.h5 one.h5 --scores -o p.csv
python - <<'E'
import csv, sys
import numpy as np
data = np.load("one.npz")
x, Y = data["x"].astype(np.float64), np.eye(3)[data["y"]]
wanted = x @ np.linalg.solve(x.T @ x, x.T @ Y)
rows = list(csv.DictReader(open("p.csv")))
found = np.array([[float(row[f"score:{c}"]) for c in range(3)] for row in rows])
away = np.abs(found - wanted).max()
print(f"largest score: NumPy {np.abs(wanted).max():.4f}, afltool {np.abs(found).max():.4f}; they differ by {away:.3g}")
good = found.shape == wanted.shape and away < 1e-6
print("RIGHT: the scores are those of NumPy" if good else "WRONG: the scores are not those of NumPy")
sys.exit(not good)
E
