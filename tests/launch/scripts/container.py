"""Stands in for docker: `container.py run … an-image command` gives the command only the variables it was told.

A call leaves a line in $TALLY.
"""

import os
import sys
from pathlib import Path

words = sys.argv[1:]
with Path(os.environ["TALLY"]).open("a") as file:
    file.write(" ".join(words).replace("\n", " ") + "\n")
if words[0] == "run":
    image = words.index("an-image")
    told = [words[at + 1] for at in range(image) if words[at] == "--env"]
    os.execvpe(
        words[image + 1],
        words[image + 1 :],
        {"PATH": os.environ["PATH"], **{name: os.environ[name] for name in told if name in os.environ}},
    )
