"""scikit-learn's own tests, as installed, of estimators whose neighbours ours are.

What goes otherwise, and why, is a table of ``doc/guide/from_scikit_learn.md``: no more
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


def otherwise(theirs, ours, modules, folder):
    """How often each of their tests fails."""
    report = folder / "report.xml"
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests", *filter(None, sys.path))))
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "_neighbours", "-p", "no:cacheprovider",
         "-W", "ignore", "--rootdir", folder, "--junitxml", report, "--pyargs", *modules],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path, "SKVT_NEIGHBOUR": f"{theirs}={ours}",
                          "SKLEARN_RUN_FLOAT32_TESTS": "1"},
        stdout=subprocess.DEVNULL,
        check=False,
    )  # fmt: skip
    failed, n_cases = Counter(), 0
    for case in ElementTree.parse(report).iter("testcase"):
        n_cases += 1
        for failure in (*case.iter("failure"), *case.iter("error")):
            assert "TypeError" not in failure.get("message"), case.get("name")
            failed[case.get("name").partition("[")[0]] += 1
    return failed, n_cases


@pytest.mark.slow
@pytest.mark.skipif(
    not sklearn.__version__.startswith("1.9."), reason="the table is of scikit-learn 1.9"
)
@pytest.mark.parametrize(("ours", "theirs", "module"), NEIGHBOURS)
def test_their_tests_go_otherwise_where_the_guide_says(ours, theirs, module, tmp_path):
    failed, _ = otherwise(theirs, ours, [module], tmp_path)
    assert failed == {test: number for (own, test), number in listed().items() if own == ours}


@pytest.mark.slow
def test_tests_of_lda_go_otherwise_where_it_is_another_thing(tmp_path):
    for needed in ("lda", "oslotest.base"):
        pytest.importorskip(needed, exc_type=ImportError)
    modules = [f"lda.tests.test_lda{of}" for of in ("", "_reuters", "_sparse", "_transform")]
    failed, n_cases = otherwise("LDA", "StructuredLDA", modules, tmp_path)
    assert n_cases == 14
    assert failed == dict.fromkeys([
        "test_lda_attributes", "test_lda_sparse",  # how many tokens of a document are of a topic
        "test_lda_random_seed",  # its random numbers
        "test_lda_zero_iter",  # no pass at all
        "test_lda_sparse_error_float",  # floats are refused
    ], 1)  # fmt: skip
