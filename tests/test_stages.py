"""Lines that say where a fit is."""

import logging
import re
import time

import numpy as np
import pytest
from estimators._registry import CLASSES

from skvt import MemoizedDPGMM, MemoizedDPMixture, StructuredLDA, TemperedLDA, _stages


@pytest.fixture
def short_silence(monkeypatch):
    monkeypatch.setattr(_stages, "MAX_SILENCE", 0.02)


def test_a_stage_is_printed_once_after_a_silence(short_silence, capsys):
    with _stages.reporting_stages(1):
        _stages.begin_stage("pass 7")
        out, end = "", time.monotonic() + 20.0
        while not out and time.monotonic() < end:
            time.sleep(0.02)
            out = capsys.readouterr().out
        time.sleep(0.1)
    assert out.startswith("pass 7, for ")
    assert capsys.readouterr().out == ""
    _stages.begin_stage("pass 8", line="pass 8")
    assert capsys.readouterr().out == ""


def test_lines_of_progress_break_the_silence(monkeypatch, capsys):
    monkeypatch.setattr(_stages, "MAX_SILENCE", 1.0)
    with _stages.reporting_stages(1):
        _stages.begin_stage("pass 7")
        for _ in range(30):
            time.sleep(0.05)
            _stages.report("a line", printed=False)
    assert capsys.readouterr().out == ""


def test_without_verbose_nothing_is_printed(short_silence, capsys):
    with _stages.reporting_stages(0):
        _stages.begin_stage("pass 7", line="pass 7")
        time.sleep(0.1)
    assert capsys.readouterr().out == ""


def test_choices_are_printed_before_the_first_pass(capsys):
    X = np.random.default_rng(0).gamma(2.0, size=(40, 3))
    mixture = MemoizedDPMixture(random_state=0, max_iter=1, verbose=1).fit(X)
    kind, logs = (mixture.priors_["numbers"].get(name, []) for name in ("covariance_type", "log"))
    lines = capsys.readouterr().out.splitlines()
    choices = [line for line in lines if line.startswith("chosen")]
    assert choices == [
        f"chosen logarithms in {len(logs)} of 3 columns",
        f"chosen covariance type of 3 columns: {kind!r}",
    ]
    assert lines.index(choices[-1]) < next(n for n, line in enumerate(lines) if "pass 1" in line)


def test_a_choice_is_printed_once_even_if_the_first_pass_comes_late(slow_down, capsys):
    slow_down(MemoizedDPMixture, "_build_model", 0.3)
    X = np.random.default_rng(0).gamma(2.0, size=(40, 3))
    MemoizedDPMixture(random_state=0, max_iter=1, verbose=1).fit(X)
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("chosen covariance type") for line in lines) == 1
    assert any(line.startswith("preparing the first pass, for ") for line in lines)


def lines_of_passes(capsys):
    lines = capsys.readouterr().out.splitlines()
    # A line of a stage, which a slow pass prints, has no colon.
    return [line for line in lines if line.startswith("pass ") and ":" in line]


def test_lines_say_when_topics_are_drawn_again(capsys):
    """By the schedule of collapsed inference: every sixth pass, in the first half of a fit."""
    X = np.random.default_rng(0).poisson(1.0, (20, 8))
    settings = {"global_step": "collapsed", "max_iter": 26, "verbose_interval": 1}
    StructuredLDA(2, random_state=0, verbose=1, **settings).fit(X)
    lines = lines_of_passes(capsys)
    drawn = [n for n, line in enumerate(lines, 1) if "topics of all tokens drawn again" in line]
    assert len(lines) == 26 and drawn == [7, 13]
    assert not any("temperature" in line for line in lines)
    settings["verbose_interval"] = 13
    StructuredLDA(2, random_state=0, verbose=1, **settings).fit(X)
    # Two draws have one note in the line about 13 passes.
    assert [line.count("drawn again") for line in lines_of_passes(capsys)] == [1, 0]


def test_lines_have_a_temperature_while_it_is_not_1(capsys):
    X = np.random.default_rng(0).poisson(1.0, (20, 8))
    lda = TemperedLDA(2, max_iter=8, random_state=0, verbose=1).fit(X)
    hot = [t > 1.0 for t in lda.history_["temperature"]]
    assert True in hot and False in hot
    assert ["temperature" in line for line in lines_of_passes(capsys)] == hot


@pytest.mark.parametrize("entry", [e for e in CLASSES if hasattr(e.cls, "partial_fit")], ids=str)
def test_every_class_has_a_line_for_each_pass_and_call_of_an_interval(entry, capsys):
    X, settings = entry.data(), {"verbose": 1, "verbose_interval": 2}
    fit = entry.make(**entry.still, **settings).fit(X)
    # (a line of a stage has no colon)
    bound = "elbo" if entry.bounded else "objective"
    numbers = re.findall(rf"^pass (\d+): .*{bound} -", capsys.readouterr().out, flags=re.MULTILINE)
    assert [*map(int, numbers)] == list(range(2, fit.n_iter_ + 1, 2))
    stream = entry.make(**settings)
    for part in np.split(X, [10, 20, 30]):
        stream.partial_fit(part)
    line = r"^call (\d+): \d+ components, .*\d s$"
    calls = re.findall(line, capsys.readouterr().out, flags=re.MULTILINE)
    assert calls == ["2", "4"]


def test_a_long_fit_has_a_line_for_the_first_ten_passes_every_tenth_and_notable_ones(capsys):
    X = np.random.default_rng(0).poisson(1.0, (40, 8))
    settings = {"max_iter": 36, "evaluate_every": 17, "perp_tol": 0.0, "random_state": 0}
    TemperedLDA(2, learning_method="batch", verbose=1, **settings).fit(X)
    lines = lines_of_passes(capsys)
    expected = [*range(1, 11), 17, 20, 30, 34, 36]
    assert [int(line.split(":")[0].removeprefix("pass ")) for line in lines] == expected
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2)) + 2.5 * rng.integers(3, size=(300, 1))
    mixture = MemoizedDPGMM(5, tol=1e-7, random_state=0, verbose=1).fit(X)
    assert mixture.converged_ and mixture.n_iter_ % 10 and 11 < mixture.n_iter_ < 20
    lines = lines_of_passes(capsys)
    assert [line.split(":")[0] for line in lines[9:]] == ["pass 10", f"pass {mixture.n_iter_}"]
    # The last line has the moves of all passes since the line before.
    merges = mixture.move_log_.to_frame().query("n_iter > 10 and move == 'merge'")
    n_merges = merges["proposed"].sum()
    assert n_merges and f" of {n_merges}, " in lines[-1]


def test_calls_of_a_stream_have_stages(short_silence, monkeypatch, capsys):
    X = np.random.default_rng(0).normal(size=(40, 2))
    stream = MemoizedDPGMM(max_components=2, random_state=0).partial_fit(X)
    monkeypatch.setattr(stream, "_adapt_fit", lambda fitted, *rows: time.sleep(0.2) or fitted)
    stream.set_params(verbose=1).partial_fit(X)
    assert re.search(r"^call 2, for \d s$", capsys.readouterr().out, flags=re.MULTILINE)


def test_lines_are_logged_also_without_verbose(caplog, capsys):
    """Those who run a service read logs, and the logger of the package is silent by default."""
    X = np.random.default_rng(0).poisson(1.0, (20, 8))
    with caplog.at_level(logging.WARNING, logger="skvt"):
        TemperedLDA(2, max_iter=3, random_state=0).fit(X)
    assert not caplog.messages
    with caplog.at_level(logging.INFO, logger="skvt"):
        TemperedLDA(2, max_iter=3, random_state=0).fit(X)
    passes = [message for message in caplog.messages if message.startswith("pass ")]
    assert len(passes) == 3 and capsys.readouterr().out == ""
