"""Benchmarks of speed over time; see README.md of benchmarks."""
