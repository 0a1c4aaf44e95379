"""Writes the files of this version of the format once for a release, and never again.

    python tests/io/_write_golden.py

Each class has a fitted estimator in one file and an interrupted fit in another. What the estimators
answered when they were written stands in ``answers.json``.
"""

import json
import sys
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent / "version_1"
sys.path.insert(0, str(Path(__file__).parents[1]))


def main():
    from _mutated import Interrupted
    from estimators._registry import CLASSES

    from skvt import save

    FOLDER.mkdir(exist_ok=True)
    answers = {}
    for entry in CLASSES:
        name = entry.cls.__name__
        heat = {"temperature": "annealed"} | entry.heated
        estimator = entry.make(**heat).set_callbacks(Interrupted(FOLDER / f"{name}.part.skvt"))
        X = entry.data()
        save(estimator.fit(X), FOLDER / f"{name}.skvt")
        answers[name] = [float(np.square(answer).sum()) for answer in entry.answers(estimator, X)]
    (FOLDER / "answers.json").write_text(json.dumps(answers, indent=1) + "\n")


if __name__ == "__main__":
    main()
