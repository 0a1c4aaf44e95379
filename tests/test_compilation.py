"""Compiled loops equal plain Python, and need no disk to store them."""

import errno
import json
import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import skvt
from skvt._compiled import _special

FOLDER = Path(skvt.__file__).parent
FITS = [
    ("TemperedLDA", {"n_components": 3, "max_iter": 2}),
    ("StructuredLDA", {"n_components": 3, "max_iter": 2}),
    ("StructuredLDA", {"n_components": 3, "max_iter": 1, "local_step": "cvb0"}),
    ("StructuredLDA", {"n_components": 3, "max_iter": 1, "global_step": "ssvi"}),
    ("MemoizedDPGMM", {"max_iter": 2}),
    ("StructuredBernoulliMixture", {"max_iter": 1}),
    ("StructuredGaPNMF", {"n_components": 3, "max_iter": 1}),
    ("AnnealedFactorialMixture", {"n_components": 2, "max_iter": 2}),
    ("CAVIGaussianMixture", {"n_components": 2}),
]


def bounds():
    """The bound of each fit to a small table, where loops in Python are fast enough.

    A minibatch of zeros follows each fit to counts.
    """
    rng = np.random.default_rng(0)
    counts, numbers = rng.poisson(0.5, (12, 8)), rng.standard_normal((20, 2))
    values = []
    for name, params in FITS:
        X = counts if name in ("TemperedLDA", "StructuredLDA", "StructuredGaPNMF") else numbers
        X = (numbers > 0).astype(float) if name == "StructuredBernoulliMixture" else X
        # Two threads use the counters of shared loops.
        estimator = getattr(skvt, name)(random_state=0, n_jobs=2, **params).fit(X)
        values.append(float(estimator.elbo(X)))
        if X is counts:
            estimator.partial_fit(np.zeros_like(X))
    return values


def in_fresh_process(statements, path, **environment):
    """(standard output, standard error) of the statements."""
    env = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    search = os.pathsep.join([str(path), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", statements], capture_output=True, text=True, cwd=path,
        env={**env, "PYTHONPATH": search, "PYTHONDONTWRITEBYTECODE": "1", **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def bounds_in_plain_python():
    """The bounds without compilation, where an index out of bounds is an error."""
    statements = "import json, test_compilation\nprint(json.dumps(test_compilation.bounds()))"
    out, _ = in_fresh_process(statements, Path(__file__).parent, NUMBA_DISABLE_JIT="1")
    return json.loads(out)


@pytest.mark.slow
def test_a_fit_has_the_bound_of_plain_python():
    assert np.all(np.isfinite(bounds()))
    assert bounds_in_plain_python() == pytest.approx(bounds(), rel=1e-6)


def test_skvt_works_without_a_writable_folder(tmp_path):
    # The same decorators compile all loops, so that a part of the package is enough.
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(FOLDER / "_compiled", tmp_path / "skvt" / "_compiled", ignore=ignored)
    shutil.copy(FOLDER / "typing.py", tmp_path / "skvt")
    (tmp_path / "skvt" / "__init__.py").touch()
    for folder in {path.parent for path in (tmp_path / "skvt").rglob("*.py")}:
        (folder / "__pycache__").touch()  # This file takes the place of a folder.
    statements = (
        "import skvt, numpy as np\n"
        "print(skvt.__file__)\n"
        "from skvt._compiled._special import digamma_array\n"
        "print(digamma_array(np.ones(1))[0])\n"
    )
    nowhere = {"HOME": os.devnull, "XDG_CACHE_HOME": os.devnull, "LOCALAPPDATA": os.devnull}
    out, err = in_fresh_process(statements, tmp_path, **nowhere)
    file, value = out.split()
    assert Path(file).parent == tmp_path / "skvt"
    assert float(value) == pytest.approx(-np.euler_gamma)
    assert err.count("RuntimeWarning: Compiled functions") == 1
    assert "NUMBA_CACHE_DIR" in err


@pytest.fixture
def fresh_function(tmp_path, monkeypatch):
    """``fresh_function()`` returns a function that is not compiled yet, as in a new process."""
    # Without the variable NUMBA_CACHE_DIR, compiled functions are stored beside the source.
    monkeypatch.setattr("numba.core.config.CACHE_DIR", "")
    (tmp_path / "function_of_a_file.py").write_text("def twice(x):\n    return 2.0 * x\n")
    monkeypatch.syspath_prepend(tmp_path)

    def fresh():
        sys.modules.pop("function_of_a_file", None)
        return _special._compile_with_cache(
            import_module("function_of_a_file").twice, allocates=False
        )

    yield fresh
    sys.modules.pop("function_of_a_file", None)


@pytest.mark.parametrize("kind", ["nbi", "nbc"])
@pytest.mark.parametrize("content", [b"", b"\x80\x04\x95", b"no pickle"])
def test_damaged_files_of_compiled_functions_are_replaced(kind, content, fresh_function, tmp_path):
    assert fresh_function()(2.0) == 4.0
    (file,) = tmp_path.rglob(f"*.{kind}")
    whole = file.read_bytes()
    file.write_bytes(content)
    assert fresh_function()(2.0) == 4.0
    assert len(file.read_bytes()) == len(whole)  # The file was written again.
    again = fresh_function()
    assert again(2.0) == 4.0 and sum(again.stats.cache_hits.values()) == 1


def test_functions_are_compiled_if_the_disk_is_full(fresh_function, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("numba.core.caching.IndexDataCacheFile._save_data", full)
    _special._warn_once_of_no_cache.cache_clear()
    with pytest.warns(RuntimeWarning, match="cannot be stored: No space left on device"):
        assert fresh_function()(2.0) == 4.0


@pytest.mark.slow
def test_a_fit_has_the_same_bits_with_compiled_and_with_loaded_loops(tmp_path):
    # Without inlining, last digits may depend on the machine code that was loaded first.
    statements = (
        "import skvt, numpy as np\n"
        "from skvt.datasets import make_topic_corpus\n"
        "size = dict(n_components=8, n_features=300, mean_length=40.0, random_state=0)\n"
        "X = make_topic_corpus(400, **size).X.astype(np.float32)\n"
        "topics = skvt.TemperedLDA(8, max_iter=5, random_state=0).fit(X)\n"
        "print(topics.components_.tobytes().hex(), topics.history_['elbo'])\n"
        "X = np.random.default_rng(0).random((120, 12)) < 0.3\n"
        "mixture = skvt.StructuredBernoulliMixture(8, global_step='ssvi', max_iter=4).set_params(\n"
        "    learning_method='structured', random_state=0).fit(X)\n"
        "print(mixture.weights_.tobytes().hex(), mixture.elbo_.hex())\n"
    )
    cache = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    compiled, _ = in_fresh_process(statements, tmp_path, **cache)
    assert any((tmp_path / "cache").rglob("*.nbc"))
    loaded, _ = in_fresh_process(statements, tmp_path, **cache)
    assert loaded == compiled
