# adapted: check-plugin → afltool.testing.check_head
# Fault: a plug-in's head that sums x³ passes check_head, and then `aggregate` refuses its files: "cannot
# be the statistics of any 300 rows … beyond 1.649e+14", a bound made for the heads of afltool itself.
# Right: what check_head lets pass goes the whole road through files, with the class means of x³ that
# NumPy has; or check_head says what the head does not declare.
set -u
right() { echo "RIGHT: $*"; exit 0; }
wrong() { echo "WRONG: $*"; exit 1; }
run() { "$@" >out.txt 2>err.txt || wrong "could not be tried: $* ended with $?: $(tail -n 1 err.txt)"; }
try() { "$@" >out.txt 2>err.txt; code=$?; echo "$* ended with $code"; tail -n 3 err.txt; }  # what is tried

mkdir -p site/cubes-1.0.dist-info
cd site/cubes-1.0.dist-info && printf 'Metadata-Version: 2.1\nName: cubes\nVersion: 1.0\n' >METADATA && printf '[afltool.heads]\ncubes = cubes\n' >entry_points.txt && cd ../..
cat >site/cubes.py <<'E'
from dataclasses import dataclass, replace
import numpy as np
from afltool.heads.base import Found, Head, add_up, state
from afltool.heads.options import HeadOptions
from afltool.math.gram import real
from afltool.memory import NOTHING
from afltool.values.arrays import F64
from afltool.values.names import Phase
@dataclass(frozen=True, eq=False)
class Cubes(Head):
    """The nearest class mean of x³."""
    name = "cubes"
    means: F64 | None = state()
    phase = lambda self: Phase("cubes") if self.means is None else None
    def _sums(self, blocks, carried):
        one = np.eye(self._bound()[1], dtype=np.int64)
        return add_up({"cubes": (X.values.astype(np.int64) ** 3).T @ one[y]} for X, y in blocks), NOTHING
    def _solve(self, total, validation):
        bits = total.context.space["fraction_bits"]
        return replace(self, means=total.arrays["cubes"] * 2.0 ** (-3 * bits) / np.maximum(total.class_counts, 1)), Found()
    decision_function = lambda self, X: real(X) ** 3 @ self.means - 0.5 * (self.means**2).sum(axis=0)
OPTIONS, HEAD = HeadOptions, Cubes
E
export PYTHONPATH=$PWD/site${PYTHONPATH:+:$PYTHONPATH}
python - <<'E'
import numpy as np
rng = np.random.default_rng(0)
y = np.arange(300) % 3
np.savez("x.npz", x=rng.normal(size=(300, 6)) * 12 + 20 * np.eye(3, 6)[y], y=y)
E
try python -c 'from afltool.testing import check_head; check_head("cubes")'
[ "$code" != 0 ] && grep -q ^AssertionError err.txt && right "check_head says what does not hold: $(grep ^AssertionError err.txt)"
[ "$code" = 0 ] || wrong "check_head ended with $code"
run afltool import x.npz -o x.h5
run afltool head cubes -o head0.h5
run afltool local-stats x.h5 --client a --head head0.h5 -o stats/
try afltool aggregate stats/ -o total.h5
[ "$code" = 0 ] || wrong "check_head passed, aggregate refuses (exit $code): $(tail -n 1 err.txt | cut -c1-140)"
run afltool solve total.h5 -o head.h5
python - <<'E'
import h5py, numpy as np, sys
data = np.load("x.npz")
x = np.rint(data["x"] * 512) / 512
wanted = np.stack([(x[data["y"] == c] ** 3).mean(axis=0) for c in range(3)], axis=1)
away = np.abs(h5py.File("head.h5")["arrays/means"][:] / wanted - 1).max()
print(f"class means of x³ differ from NumPy's by {away:.2g} of their size")
print("RIGHT: the road through files gives NumPy's means" if away < 1e-9 else "WRONG: the means are others")
sys.exit(int(away >= 1e-9))
E
