"""Names that a shell or sbatch could carry out, and programs that write down what arrives."""

from __future__ import annotations

import os
import subprocess

#: A name of a folder with everything that a shell or sbatch could take for more than a name.
NAME = """-a 'b' "c" $(touch X1) `touch X2` 50%j %% #h ; touch X3 & * ~ ! hetjob ü"""
WORD = """a"b'c#$(touch${IFS}X4)%j\\d;hetjob"""  # an account has no spaces
TELL = """#!/bin/bash
printf '%s\\0' "$@" $'\\n' >>"$STUB/{name}"
{more}
"""


class Programs:
    """A working directory called `NAME`, and stand-ins that write down the words that they get."""

    def __init__(self, tmp_path, monkeypatch):
        self.root, self.at, self.stub = tmp_path, tmp_path / NAME, tmp_path / "stub"
        more = {"sbatch": 'wc -l <"$STUB/sbatch"', "scontrol": "echo UP", "squeue": ""}
        more["afltool"] = 'case "$*" in *--next*) cat "$STUB/lines" ;; esac'
        for folder in (self.at, self.stub, tmp_path / "bin"):
            folder.mkdir()
        for name, text in more.items():
            (self.stub / name).write_text("")
            program = tmp_path / "bin" / name
            program.write_text(TELL.format(name=name, more=text))
            program.chmod(0o755)
        monkeypatch.chdir(self.at)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
        monkeypatch.setenv("STUB", str(self.stub))

    def __call__(self, script, *arguments, **more):
        """Run a script of bash."""
        env = {**os.environ, "SLURM_JOB_ID": "9", **more}
        subprocess.run(["bash", script, *arguments], env=env, check=True)

    def told(self, name):
        """The words of each call of a program since the last question."""
        calls = (self.stub / name).read_text().split("\n\0")[:-1]
        (self.stub / name).write_text("")
        return [call.split("\0")[:-1] for call in calls]

    def check(self):
        """No name was carried out: each would have made a file X1, X2 …"""
        made = [p for p in self.root.rglob("X*") if p.name[1:].isdigit()]
        assert not made
