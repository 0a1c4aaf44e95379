"""Spectrograms of speech-like sounds: their law, and what is refused."""

import numpy as np

from skvt.datasets import make_spectrogram


def test_counts_follow_the_law_of_the_returned_parameters():
    X, components, activations = make_spectrogram(4000, n_features=40, random_state=0)
    assert (
        X.shape == (4000, 40) and components.shape == (50, 40) and activations.shape == (4000, 50)
    )
    np.testing.assert_array_equal(X, np.round(X))
    rates = activations @ components
    # Poisson: mean and variance of the standardised counts
    z = (X - rates) / np.sqrt(rates)
    assert abs(z.mean()) < 4.0 / X.size**0.5
    kurtosis = 2.0 + 1.0 / rates  # variance of z squared
    assert abs((z**2 - 1.0).mean()) < 4.0 * np.sqrt(kurtosis.mean() / X.size)
    # Gamma(0.2, 0.2): mean 1, variance 5
    error = activations.std() / activations.size**0.5
    assert abs(activations.mean() - 1.0) < 4.0 * error
    squares = (activations - 1.0) ** 2
    assert abs(squares.mean() - 5.0) < 4.0 * squares.std() / activations.size**0.5


def test_spectra_have_equal_means_and_differ():
    for seed in range(3):
        components = make_spectrogram(1, mean_count=7.0, random_state=seed).components
        np.testing.assert_allclose(components.mean(axis=1), 7.0 / 50)
        assert (components > 0.0).all()
        assert (np.corrcoef(components) - 2.0 * np.eye(50)).max() < 0.999


def test_voiced_sounds_have_harmonics_and_other_sounds_one_peak():
    components = make_spectrogram(1, n_components=20, n_features=2000, random_state=0).components
    inner = components[:, 1:-1]
    peaks = (inner > components[:, :-2]) & (inner > components[:, 2:])
    n_peaks = peaks.sum(axis=1)
    assert (n_peaks[:18] >= 20).all()
    np.testing.assert_array_equal(n_peaks[18:], 1)
