"""Run afltool as it is called here; append its peak memory in MB, and its name or step, to a file.

python tests/measured.py FILE WORDS…
"""

import resource
import subprocess
import sys
from pathlib import Path

file, *words = sys.argv[1:]
done = subprocess.run([Path(sys.executable).with_name("afltool"), *words], check=False)
most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6
name = words[words.index("--step") + 1] if "--step" in words else words[0]
with Path(file).open("a") as out:
    out.write(f"{most:.1f} {name}\n")
sys.exit(done.returncode)
