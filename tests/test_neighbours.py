"""scikit-learn's own tests, as installed, of estimators whose neighbours ours are.

What goes otherwise, and why, is the table at the end of ``doc/guide/from_scikit_learn.md``: no more
and no less.
"""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
import sklearn

ROOT = Path(__file__).parents[1]
# Ours, theirs, and the module of their tests.
NEIGHBOURS = [
    ("TemperedLDA", "LatentDirichletAllocation", "sklearn.decomposition.tests.test_online_lda"),
    ("StructuredLDA", "LatentDirichletAllocation", "sklearn.decomposition.tests.test_online_lda"),
    ("MemoizedDPGMM", "BayesianGaussianMixture", "sklearn.mixture.tests.test_bayesian_mixture"),
]
ROW = re.compile(r"^\| `(test_\w+)` \| ([^|]+) \| (\d+) \| ([^|]+) \|$", flags=re.MULTILINE)


def listed():
    """How often each test of theirs goes otherwise with each of ours, as the guide says."""
    page = (ROOT / "doc/guide/from_scikit_learn.md").read_text(encoding="utf-8")
    return {
        (ours, test): int(number)
        for test, whose, number, reason in ROW.findall(page)
        for ours in re.findall(r"`(\w+)`", whose)
    }


def test_the_guide_adds_up_what_goes_otherwise():
    page = (ROOT / "doc/guide/from_scikit_learn.md").read_text(encoding="utf-8")
    (said,) = re.findall(r"(\d+) of their (\d+) tests go otherwise", page)
    assert int(said[0]) == sum(listed().values())
    assert {ours for ours, _ in listed()} <= {ours for ours, _, _ in NEIGHBOURS}


@pytest.mark.slow
@pytest.mark.skipif(
    not sklearn.__version__.startswith("1.9."), reason="the table is of scikit-learn 1.9"
)
@pytest.mark.parametrize(("ours", "theirs", "module"), NEIGHBOURS)
def test_their_tests_go_otherwise_where_the_guide_says(ours, theirs, module, tmp_path):
    report = tmp_path / "report.xml"
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests")))
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "_neighbours", "-p", "no:cacheprovider",
         "-W", "ignore", "--rootdir", tmp_path, "--junitxml", report, "--pyargs", module],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path, "SKVT_NEIGHBOUR": f"{theirs}={ours}",
                          "SKLEARN_RUN_FLOAT32_TESTS": "1"},
        stdout=subprocess.DEVNULL,
        check=False,
    )  # fmt: skip
    otherwise = Counter()
    for case in ElementTree.parse(report).iter("testcase"):
        for failure in (*case.iter("failure"), *case.iter("error")):
            assert "TypeError" not in failure.get("message"), case.get("name")
            otherwise[ours, case.get("name").partition("[")[0]] += 1
    assert otherwise == {case: number for case, number in listed().items() if case[0] == ours}
