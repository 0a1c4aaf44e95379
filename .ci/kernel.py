"""Exit code 0 if NumPy and SciPy compute right with the kernels that OPENBLAS_CORETYPE chooses."""

import numpy as np
import scipy.linalg

rng = np.random.default_rng(0)
for dtype, rtol in ((np.float32, 1e-3), (np.float64, 1e-10)):
    A = rng.normal(size=(150, 100)).astype(dtype)
    gram = A.T @ A
    np.testing.assert_allclose(gram, np.einsum("ni,nj->ij", A, A), rtol=rtol, atol=100 * rtol)
    for module in (np.linalg, scipy.linalg):
        root = module.cholesky(gram)
        upper = module is scipy.linalg
        product = root.T @ root if upper else root @ root.T
        np.testing.assert_allclose(product, gram, rtol=rtol, atol=100 * rtol)
        values = module.eigh(gram)[0]
        np.testing.assert_allclose(values.sum(), np.trace(gram), rtol=rtol)
        np.testing.assert_allclose(module.svd(A)[1] ** 2, values[::-1], rtol=rtol, atol=100 * rtol)
    # OpenBLAS 0.3.34, forced to another kernel, crashes in this product on some processors (its
    # issues 6021 and 6026), which is an exit code other than 0, too
    B, C = rng.normal(size=(30, 496)).astype(dtype), rng.normal(size=(496, 9)).astype(dtype)
    np.testing.assert_allclose(B @ C, np.einsum("ni,ij->nj", B, C), rtol=rtol, atol=100 * rtol)
