"""The installed tests of scikit-learn pass with our estimators in the place of theirs.

A table of ``doc/guide/from_scikit_learn.md`` lists the tests that fail, and the reasons.
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
    """{(our estimator, their test): number of failures} as the guide states."""
    page = (ROOT / "doc/guide/from_scikit_learn.md").read_text(encoding="utf-8")
    return {
        (ours, test): int(number)
        for test, whose, number, reason in ROW.findall(page)
        for ours in re.findall(r"`(\w+)`", whose)
    }


def test_the_guide_states_the_sum_of_its_table():
    page = (ROOT / "doc/guide/from_scikit_learn.md").read_text(encoding="utf-8")
    (said,) = re.findall(r"(\d+) of their (\d+) tests fail", page)
    assert int(said[0]) == sum(listed().values())
    assert {ours for ours, _ in listed()} <= {ours for ours, _, _ in NEIGHBOURS}


def failures(theirs, ours, module, folder):
    """How often each of their tests fails with our estimator."""
    report = folder / "report.xml"
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests", *filter(None, sys.path))))
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "_neighbours", "-p", "no:cacheprovider",
         "-W", "ignore", "--rootdir", folder, "--junitxml", report, "--pyargs", module],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path, "SKVT_NEIGHBOUR": f"{theirs}={ours}",
                          "SKLEARN_RUN_FLOAT32_TESTS": "1"},
        stdout=subprocess.DEVNULL,
        check=False,
    )  # fmt: skip
    failed = Counter()
    for case in ElementTree.parse(report).iter("testcase"):
        for failure in (*case.iter("failure"), *case.iter("error")):
            assert "TypeError" not in failure.get("message"), case.get("name")
            failed[case.get("name").partition("[")[0]] += 1
    return failed


@pytest.mark.slow
@pytest.mark.skipif(
    not sklearn.__version__.startswith("1.9."), reason="the table is of scikit-learn 1.9"
)
@pytest.mark.parametrize(("ours", "theirs", "module"), NEIGHBOURS)
def test_their_tests_fail_exactly_where_the_guide_says(ours, theirs, module, tmp_path):
    failed = failures(theirs, ours, module, tmp_path)
    assert failed == {test: number for (own, test), number in listed().items() if own == ours}
