"""Generator of a spectrogram of mixed, speech-like sounds with known spectra and levels."""

from collections import namedtuple
from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_random_state, check_scalar

Spectrogram = namedtuple("Spectrogram", ["X", "components", "activations"])
Spectrogram.__doc__ = "Counts X (N, F), spectra W (K, F), activations H (N, K); X ~ Poisson(H W)."

# Highest frequency in a spectrum. All frequencies and widths are in Hz.
NYQUIST = 8000.0
# Share of the voiced sounds, which have harmonics of a pitch. The other sounds are noise like "s".
VOICED_SHARE = 0.9
# Range of the pitch of a voiced sound, which is drawn uniformly on a logarithmic scale.
PITCH_RANGE = 80.0, 250.0
# Ranges of the four resonances of a voiced sound, as in vowels of men, women and children.
FORMANT_RANGES = np.array([[250.0, 850.0], [800.0, 2500.0], [2400.0, 3100.0], [3300.0, 4000.0]])
# Half widths of the four resonances: the distances from the centre at which the gain is a half.
BANDWIDTHS = np.array([60.0, 90.0, 130.0, 180.0])
# Range of the centre of the resonance of a noise, and of its half width.
CENTRE_RANGE = 1500.0, 7500.0
HALF_WIDTH_RANGE = 200.0, 700.0
# Standard deviation of the line of a pure tone in the spectrum: a Hann window of 512 samples at 16
# kHz has half its gain at a distance of one bin. A bin is 31.25 Hz wide, so that the standard
# deviation is 31.25 / sqrt(2 log 2).
LINE_WIDTH = 26.5


def draw_spectra(n_components, n_features, rng):
    """Draw magnitude spectra of voiced and unvoiced sounds, (K, F), with mean 1 over bins."""
    frequency = np.linspace(0.0, NYQUIST, n_features)
    n_voiced = int(np.ceil(VOICED_SHARE * n_components))
    voiced = [_draw_voiced(frequency, rng) for _ in range(n_voiced)]
    # An unvoiced sound is noise through one broad resonance.
    unvoiced = [
        _compute_gain(frequency, rng.uniform(*CENTRE_RANGE), rng.uniform(*HALF_WIDTH_RANGE))
        for _ in range(n_components - n_voiced)
    ]
    spectra = np.stack(voiced + unvoiced)
    return spectra / spectra.mean(axis=1, keepdims=True)


def _draw_voiced(frequency, rng):
    """Draw the spectrum (F,) of a voiced sound: harmonics under an envelope with four resonances.

    ``frequency`` (F,) has the frequencies of the bins in Hz.
    """
    pitch = np.exp(rng.uniform(*np.log(PITCH_RANGE)))
    harmonics = pitch * np.arange(1, int(NYQUIST / pitch) + 1)
    # The envelope is a floor of 0.01 plus the resonances, each with 0.7 times the gain of the
    # resonance before it. The power 0.5 is a slope of 3 dB per octave.
    resonances = _compute_gain(harmonics[:, None], rng.uniform(*FORMANT_RANGES.T), BANDWIDTHS)
    envelope = resonances @ 0.7 ** np.arange(len(FORMANT_RANGES)) + 0.01
    level = (pitch / harmonics) ** 0.5 * envelope
    return np.exp(-0.5 * ((frequency[:, None] - harmonics) / LINE_WIDTH) ** 2) @ level


def _compute_gain(frequency, centre, half_width):
    """Return the gain of a resonance at each frequency, which is 1 at the centre."""
    return 1.0 / (1.0 + ((frequency - centre) / half_width) ** 2)


def make_spectrogram(
    n_samples=1000, *, n_components=50, n_features=257, mean_count=5.0, activation_shape=0.2,
    random_state=None,
):  # fmt: skip
    """Draw a spectrogram of speech-like sounds that overlap [HB15 sec. 4.3]_.

    Each frame is a mixture of all sounds. The levels of the sounds have gamma distributions, such
    that few levels are high at the same time. Magnitudes are Poisson counts.

    Parameters
    ----------
    n_samples : int, default=1000
        Number of frames N.
    n_components : int, default=50
        Number of sounds K, nine tenths of them voiced.
    n_features : int, default=257
        Number of frequency bins F, evenly from 0 to 8 kHz.
    mean_count : float, default=5.0
        Mean of all counts.
    activation_shape : float, default=0.2
        Shape, and rate, of the gamma distribution of a sound's level; small numbers make levels
        sparse.
    random_state : int, RandomState instance or None, default=None
        Pass an int for the same spectrogram at every call.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
        Whole counts as float64. Rows are frames: the transpose of the paper's matrix.
    components : ndarray of shape (n_components, n_features)
        Spectra. Each has the mean ``mean_count / n_components`` over bins.
    activations : ndarray of shape (n_samples, n_components)
        Levels of the sounds: ``X ~ Poisson(activations @ components)``. The three results are
        returned as a named tuple.

    Notes
    -----
    The spectra of the paper are estimated from speech that cannot be redistributed. Here a voiced
    sound has harmonics of a pitch between 80 and 250 Hz, with a slope of 3 dB per octave, under an
    envelope with four resonances; an unvoiced sound is noise through one resonance. Of 50 such
    spectra, about half have a correlation of more than 0.7 with another of the spectra.

    References
    ----------
    .. [HB15 sec. 4.3] M. Hoffman and D. Blei, "Structured Stochastic Variational Inference",
       AISTATS 2015.

    Examples
    --------
    >>> from skvt.datasets import make_spectrogram
    >>> X, components, activations = make_spectrogram(100, random_state=0)
    >>> X.shape, components.shape, activations.shape
    ((100, 257), (50, 257), (100, 50))
    """
    check_scalar(n_samples, "n_samples", Integral, min_val=1)
    check_scalar(n_components, "n_components", Integral, min_val=1)
    check_scalar(n_features, "n_features", Integral, min_val=2)
    for name, value in (("mean_count", mean_count), ("activation_shape", activation_shape)):
        check_scalar(value, name, Real, min_val=0.0, include_boundaries="neither")
    rng = check_random_state(random_state)
    components = draw_spectra(n_components, n_features, rng) * (mean_count / n_components)
    activations = rng.gamma(
        activation_shape, 1.0 / activation_shape, size=(n_samples, n_components)
    )
    X = rng.poisson(activations @ components).astype(np.float64)
    return Spectrogram(X, components, activations)
