"""Models: what each knows of its own likelihood, and nothing of engines or estimators."""
