"""Decompositions, solvers, Fourier transforms, sorts, scans, `einsum`, statistics, and the gradients that exist."""

import tensorflow as tf
from ending import show

weights = tf.Variable(tf.random.stateless_normal([6, 6], seed=[39, 1]))


@tf.function
def step(x):
    with tf.GradientTape() as tape:
        square = tf.matmul(weights, weights, transpose_a=True) + 6.0 * tf.eye(6)
        lower = tf.linalg.cholesky(square)
        q, r = tf.linalg.qr(weights)
        values, vectors = tf.linalg.eigh(square)
        solved = tf.linalg.solve(square, x) + tf.linalg.triangular_solve(lower, x) + tf.linalg.lstsq(square, x)
        spectrum = tf.signal.ifft2d(tf.signal.fft2d(tf.cast(weights, tf.complex64)) * 2.0)
        top, indices = tf.math.top_k(tf.reshape(weights, [-1]), 5)
        loss = tf.reduce_mean(tf.square(solved)) + tf.linalg.logdet(square) + tf.reduce_sum(values) * 0.01
        loss += tf.reduce_sum(tf.math.real(spectrum)) * 0.01 + tf.linalg.trace(tf.linalg.inv(square))
        loss += tf.reduce_logsumexp(tf.cumsum(weights, axis=1)) + tf.reduce_mean(top) + tf.reduce_sum(q * r) * 0.01
        loss += tf.einsum("ij,jk,ki->", weights, square, lower) * 1e-3 + tf.reduce_mean(tf.math.lgamma(values))
    gradient = tape.gradient(loss, weights)
    weights.assign_sub(1e-3 * gradient)
    singular = tf.linalg.svd(weights, compute_uv=False)
    return [
        loss, vectors, singular, indices, tf.sort(weights), tf.argsort(weights[0]),
        tf.math.cumulative_logsumexp(weights), tf.linalg.expm(weights * 0.1), tf.signal.stft(tf.reshape(x, [-1]), 8, 4),
        tf.nn.moments(weights, [0, 1]),
        tf.unique_with_counts(tf.cast(weights[0], tf.int32)), tf.histogram_fixed_width(weights, [-2.0, 2.0], 5),
        tf.math.bincount(tf.constant([1, 1, 4])), tf.searchsorted(tf.constant([0.0, 1.0]), weights[0]),
        tf.linalg.band_part(weights, 1, 0), tf.gather_nd(weights, [[0, 1], [5, 5]]), tf.roll(weights, 2, 1),
        tf.tensor_scatter_nd_add(weights, [[0, 1]], [1.0]), tf.math.segment_mean(weights, [0, 0, 1, 1, 2, 2]),
        tf.nn.ctc_loss([[1, 2]], tf.zeros([4, 1, 4]), [2], [4], logits_time_major=True),
        tf.image.sobel_edges(x[None, :, :, None]),
        tf.nn.conv1d(x[None], weights[:3, :, None], 1, "SAME"), tf.nn.local_response_normalization(x[None, None]),
    ]  # fmt: skip


losses, outputs = [], []
for number in range(5):
    loss, *rest = step(tf.random.stateless_normal([6, 6], seed=[number, 73]))
    losses.append(loss)
    outputs.append(rest)
show(losses, weights=weights, outputs=outputs)
