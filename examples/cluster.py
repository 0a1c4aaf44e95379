"""A mixture of rows that do not fit into the memory of the workers: Dask on this machine.

Writes 1.4 GB of rows to files, starts a cluster of two worker processes that may use 600 MB each,
and fits a Gaussian mixture that finds its number of components. The workers read the rows and keep
as many as their memory allows; this process receives only statistics. For another cluster, change
only the line that makes the client. Takes about two minutes on two cores.

    pip install ".[examples,dask]" && python examples/cluster.py
"""

import argparse
import tempfile
import time
from pathlib import Path

import dask
import numpy as np
from distributed import Client, LocalCluster

from skvt import MemoizedDPGMM

N_FILES, ROWS_OF_FILE, N_COLUMNS, N_CLUSTERS = 70, 50_000, 50, 12


def write_rows(path, seed, means):
    """Write a file of rows drawn from clusters of different sizes, and return its path."""
    rng = np.random.default_rng(seed)
    sizes = np.arange(1.0, len(means) + 1.0)
    labels = rng.choice(len(means), ROWS_OF_FILE, p=sizes / sizes.sum())
    np.save(path, means[labels] + rng.normal(size=(ROWS_OF_FILE, N_COLUMNS)))
    return path


def main():
    """Write the rows, fit the mixture, and compare the result with the true clusters."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=N_FILES, help="of 20 MB each")
    parser.add_argument("--memory", default="600MB", help="limit of each worker")
    args = parser.parse_args()

    means = np.random.default_rng(0).normal(scale=1.5, size=(N_CLUSTERS, N_COLUMNS))
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, memory_limit=args.memory)
    with tempfile.TemporaryDirectory() as folder, cluster, Client(cluster) as client:
        paths = [str(Path(folder) / f"rows{i:03}.npy") for i in range(args.files)]
        client.gather(client.map(write_rows, paths, range(args.files), means=means))
        gigabytes = sum(Path(path).stat().st_size for path in paths) / 1e9
        print(f"{gigabytes:.1f} GB of rows, two workers with {args.memory} each")

        # A chunk is a delayed call that returns an array of rows. Here it loads a file on a worker.
        chunks = [dask.delayed(np.load)(path) for path in paths]
        mixture = MemoizedDPGMM(covariance_type="diag", max_iter=20, verbose=1, random_state=0)
        started = time.perf_counter()
        mixture.fit(chunks)
        print(
            f"{mixture.n_components_} components of {N_CLUSTERS} after {mixture.n_iter_} passes "
            f"and {time.perf_counter() - started:.0f} s; bound {mixture.elbo_:.6g} nats"
        )
        nearest = np.abs(mixture.means_[:, None] - means).max(axis=2).min(axis=1)
        print(f"means within {nearest.max():.3f} of the true ones")

        # Predictions are lazy arrays, which can be computed by chunks or written to files.
        labels = mixture.predict(chunks)
        print("rows of each component:", np.bincount(labels.compute()))


if __name__ == "__main__":
    main()
