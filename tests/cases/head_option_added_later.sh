# adapted: option(…, newer=True) → Annotated[…, Absent(value)]
# Fault: an option that is added to a head makes older statistics useless, unless its author knew to
# write newer=True: the digest of the head before its first round holds every option, defaults, too.
# Right: with the default of the new option the older files still fit. The script adds an option to the
# linear head in a copy of the package, and solves a total that was made without it.
set -u
right() { echo "RIGHT: $*"; exit 0; }
wrong() { echo "WRONG: $*"; exit 1; }
run() { "$@" >out.txt 2>err.txt || wrong "could not be tried: $* ended with $?: $(tail -n 1 err.txt)"; }
try() { "$@" >out.txt 2>err.txt; code=$?; echo "$* ended with $code"; tail -n 3 err.txt; }  # what is tried

mkdir copy
python - <<'E'
import pathlib, re, shutil
import numpy as np
import afltool
shutil.copytree(pathlib.Path(afltool.__file__).parent, "copy/afltool", ignore=shutil.ignore_patterns("__pycache__"))
line = '    softness: Annotated[float, Absent(0.0)] = Field(default=0.0, ge=0, description="an option of a later version")\n'
found = 0
for path in pathlib.Path("copy/afltool").rglob("*.py"):
    text = path.read_text("utf-8")
    new = re.sub(r'(^class LinearOptions\(.*\n(?:    """(?:.|\n)*?"""\n))', lambda m: m[1] + "\n" + line, text, flags=re.M)
    found += new != text
    path.write_text(new, "utf-8")
np.savez("x.npz", x=np.random.default_rng(0).normal(size=(90, 3)), y=np.arange(90) % 3)
raise SystemExit(found != 1)
E
[ $? = 0 ] || wrong "could not be tried: the class LinearOptions was not found"
run afltool import x.npz -o x.h5
run afltool head linear --ridge 1 -o head0.h5
run afltool local-stats x.h5 --client a --head head0.h5 -o stats/
run afltool aggregate stats/ -o total.h5
run afltool solve total.h5 -o before.h5
export PYTHONPATH=$PWD/copy${PYTHONPATH:+:$PYTHONPATH}
afltool head linear --help-all 2>&1 | grep -q softness || wrong "could not be tried: the option did not arrive"
try afltool solve total.h5 -o after.h5
[ "$code" = 0 ] || wrong "a total of the version before cannot be solved: $(tail -n 1 err.txt | cut -c1-140)"
run afltool head linear --ridge 1 -o head1.h5
run afltool local-stats x.h5 --client b --head head1.h5 -o stats1/
try afltool aggregate stats/ stats1/ --allow-repeats -o both.h5
[ "$code" = 0 ] || wrong "statistics of two versions with equal options do not add up: $(tail -n 1 err.txt | cut -c1-140)"
[ "$(afltool info before.h5 --field digest)" = "$(afltool info after.h5 --field digest)" ] && right "older files fit, and the head is the same"
wrong "the head of the same sums is another one"
