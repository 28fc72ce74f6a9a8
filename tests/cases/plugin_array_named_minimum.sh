# adapted: scores → decision_function
# Fault: a plug-in's sum whose array is called "minimum" silently gets the minimum of blocks and clients in
# place of their sum: names of arrays decide how they are joined. (check-plugin was not asked.)
# Right: statistics and total are NumPy's class sums, or the name is refused where it is first seen.
set -u
right() { echo "RIGHT: $*"; exit 0; }
wrong() { echo "WRONG: $*"; exit 1; }
run() { "$@" >out.txt 2>err.txt || wrong "could not be tried: $* ended with $?: $(tail -n 1 err.txt)"; }
try() { "$@" >out.txt 2>err.txt; code=$?; echo "$* ended with $code"; tail -n 3 err.txt; }  # what is tried
refused() { [ "$code" -ge 2 ] && [ "$code" -le 5 ] && ! grep -q Traceback err.txt && grep -qiE -- "$1" err.txt; }

mkdir -p site/lower-1.0.dist-info
cd site/lower-1.0.dist-info && printf 'Metadata-Version: 2.1\nName: lower\nVersion: 1.0\n' >METADATA && printf '[afltool.heads]\nlower = lower\n' >entry_points.txt && cd ../..
cat >site/lower.py <<'E'
from dataclasses import dataclass, replace
from afltool.heads.base import Found, Head, add_up, state
from afltool.heads.options import HeadOptions
from afltool.math.gram import gram_and_cross, real
from afltool.memory import NOTHING
from afltool.values.arrays import F64
from afltool.values.names import Phase
@dataclass(frozen=True, eq=False)
class Lower(Head):
    """Class sums, in an array with an unlucky name."""
    name = "lower"
    weights: F64 | None = state()
    phase = lambda self: Phase("lower") if self.weights is None else None
    def _sums(self, blocks, carried):
        return add_up({"minimum": gram_and_cross(X, y, self._bound()[1])[1]} for X, y in blocks), NOTHING
    def _solve(self, total, validation):
        return replace(self, weights=total.arrays["minimum"] * 1.0), Found()
    decision_function = lambda self, X: real(X) @ self.weights
OPTIONS, HEAD = HeadOptions, Lower
E
export PYTHONPATH=$PWD/site${PYTHONPATH:+:$PYTHONPATH}
python -c '
import numpy as np
rng = np.random.default_rng(0)
for name in "ab":
    np.savez(f"{name}.npz", x=rng.integers(1, 9, (30, 2)), y=np.arange(30) % 3)'
step() { # a command that may refuse the name
    try "$@"
    [ "$code" = 0 ] || { refused minimum && right "refused: $(tail -n 1 err.txt | cut -c1-100)"; wrong "ended with $code: $(tail -n 1 err.txt | cut -c1-100)"; }
}
step afltool head lower -o head0.h5
for one in a b; do
    run afltool import $one.npz -o $one.h5
    step afltool local-stats $one.h5 --client $one --head head0.h5 -o stats/
done
step afltool aggregate stats/ --allow-repeats -o total.h5
python - <<'E'
import h5py, numpy as np, sys
read = lambda path: h5py.File(path)["arrays/minimum"][:].astype(float) / 512
wanted = {one: (d := np.load(f"{one}.npz"))["x"].T @ np.eye(3)[d["y"]] for one in "ab"}
found = {one: read(f"stats/client-{one}.h5") for one in "ab"}
total = read("total.h5")
print(f"feature 0, class 0: NumPy {wanted['a'][0, 0]:.0f} + {wanted['b'][0, 0]:.0f}; afltool {found['a'][0, 0]:.0f}, {found['b'][0, 0]:.0f}, total {total[0, 0]:.0f}")
good = np.array_equal(total, wanted["a"] + wanted["b"])
print("RIGHT: the total is the sum" if good else "WRONG: the total is not the sum, and nothing says so")
sys.exit(not good)
E
