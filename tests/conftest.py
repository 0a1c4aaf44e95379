import os

# The tests draw figures but never show them. Set before anything imports matplotlib.
os.environ.setdefault("MPLBACKEND", "Agg")
