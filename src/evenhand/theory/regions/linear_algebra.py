"""Small symmetric matrices without allocation: Cholesky solver, Jacobi eigenvectors."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel

Array = NDArray[np.float64]

SWEEPS = 60  # of Jacobi rotations: six are usual


@kernel
def factor(a: Array) -> None:
    """Overwrite the lower triangle of a positive semidefinite matrix with its Cholesky factor.

    A pivot that is 0 up to rounding marks a direction in the null space; its column becomes 0.
    """
    n = a.shape[0]
    for j in range(n):
        size = a[j, j]
        for c in range(j):
            a[j, j] -= a[j, c] * a[j, c]
        if a[j, j] <= 1e-15 * size or size <= 0.0:
            for i in range(j, n):
                a[i, j] = 0.0
            continue
        a[j, j] = math.sqrt(a[j, j])
        for i in range(j + 1, n):
            for c in range(j):
                a[i, j] -= a[i, c] * a[j, c]
            a[i, j] /= a[j, j]


@kernel
def solve(a: Array, b: Array) -> None:
    """Overwrite b with the solution for the factored matrix, 0 in the null space."""
    n = b.shape[0]
    for i in range(n):
        for c in range(i):
            b[i] -= a[i, c] * b[c]
        b[i] = b[i] / a[i, i] if a[i, i] > 0.0 else 0.0
    for i in range(n - 1, -1, -1):
        for c in range(i + 1, n):
            b[i] -= a[c, i] * b[c]
        b[i] = b[i] / a[i, i] if a[i, i] > 0.0 else 0.0


@kernel
def jacobi(a: Array, vectors: Array) -> None:
    """Diagonalise a symmetric matrix in place; the eigenvectors are the columns of `vectors`."""
    n = a.shape[0]
    for i in range(n):
        for j in range(n):
            vectors[i, j] = 1.0 if i == j else 0.0
    for _ in range(SWEEPS):
        done = True
        for i in range(n - 1):
            for j in range(i + 1, n):
                # relative to both diagonal entries: small eigenvalues of a graded matrix matter too
                if abs(a[i, j]) > 1e-17 * math.sqrt(abs(a[i, i] * a[j, j])) and a[i, j] != 0.0:
                    _rotate(a, vectors, i, j)
                    done = False
        if done:
            break


@kernel
def _rotate(a: Array, vectors: Array, i: int, j: int) -> None:
    """Apply the plane rotation that makes a[i, j] zero."""
    theta = 0.5 * (a[j, j] - a[i, i]) / a[i, j]
    t = 1.0 / (abs(theta) + math.sqrt(theta * theta + 1.0))
    if theta < 0.0:
        t = -t
    c = 1.0 / math.sqrt(t * t + 1.0)
    s = t * c
    a[i, i], a[j, j] = a[i, i] - t * a[i, j], a[j, j] + t * a[i, j]
    a[i, j] = a[j, i] = 0.0
    for g in range(a.shape[0]):
        if g not in (i, j):
            left, right = a[g, i], a[g, j]
            a[g, i] = a[i, g] = c * left - s * right
            a[g, j] = a[j, g] = s * left + c * right
        left, right = vectors[g, i], vectors[g, j]
        vectors[g, i], vectors[g, j] = c * left - s * right, s * left + c * right
