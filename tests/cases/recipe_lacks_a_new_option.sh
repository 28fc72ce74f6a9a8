# adapted: option(…) → pydantic's Field(…)
# Fault: an option that is declared for `solve` is not in its recipe (only `extract` reads in_result).
# With another value of it `solve … -o head.h5` exits 0 and keeps the old head.
# Right: another value of an option that counts gives another recipe. The script declares an option
# "shrink" in a copy of the package, as docs/extending.md says ("one line in its class"), and tries it.
set -u
right() { echo "RIGHT: $*"; exit 0; }
wrong() { echo "WRONG: $*"; exit 1; }
run() { "$@" >out.txt 2>err.txt || wrong "could not be tried: $* ended with $?: $(tail -n 1 err.txt)"; }
try() { "$@" >out.txt 2>err.txt; code=$?; echo "$* ended with $code"; tail -n 3 err.txt; }  # what is tried

mkdir copy
python - <<'E'
import pathlib, re, shutil
import afltool
shutil.copytree(pathlib.Path(afltool.__file__).parent, "copy/afltool", ignore=shutil.ignore_patterns("__pycache__"))
line = '    shrink: float = Field(default=0.0, ge=0, lt=1, description="a new option, which counts")\n'
found = 0
for path in pathlib.Path("copy/afltool").rglob("*.py"):
    text = path.read_text("utf-8")
    new = re.sub(r'(^class SolveOptions\(.*\n(?:    """(?:.|\n)*?"""\n))', lambda m: m[1] + "\n" + line, text, flags=re.M)
    found += new != text
    path.write_text(new, "utf-8")
rng = __import__("numpy").random.default_rng(0)
__import__("numpy").savez("x.npz", x=rng.normal(size=(90, 3)), y=[0, 1, 2] * 30)
raise SystemExit(found != 1)
E
[ $? = 0 ] || wrong "could not be tried: the class SolveOptions was not found"
export PYTHONPATH=$PWD/copy${PYTHONPATH:+:$PYTHONPATH}
run afltool import x.npz -o x.h5
run afltool head linear --ridge 1 -o head0.h5
run afltool local-stats x.h5 --client a --head head0.h5 --sum -o total.h5
run afltool solve total.h5 -o head.h5
run afltool solve total.h5 --shrink 0.5 -o other.h5
recipe() { afltool info "$1" --field recipe; }
echo "without: $(recipe head.h5 | cut -c1-160)"
recipe head.h5 | grep -q . || wrong "could not be tried: no recipe"
[ "$(recipe head.h5)" = "$(recipe other.h5)" ] && wrong "--shrink 0.5 has the recipe of a head without it: solve would keep the old head"
try afltool solve total.h5 --shrink 0.5 -o head.h5
[ "$code" = 0 ] && [ "$(recipe head.h5)" != "$(recipe other.h5)" ] && wrong "the old head was kept"
right "another value has another recipe (solve onto the old head: exit $code)"
