"""Model files, which hold a fitted estimator as JSON and arrays, without pickle."""

from skvt.io._archive import FileError
from skvt.io._classes import register
from skvt.io._files import load, save

__all__ = ["FileError", "load", "register", "save"]
