// y = A x: a thread for each row.
extern "C" __global__ void multiply(const unsigned* starts, const unsigned* columns, const double* values,
                                    const double* x, double* y, unsigned n) {
    unsigned row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n) return;
    double sum = 0.0;
    for (unsigned at = starts[row]; at < starts[row + 1]; at++) sum += values[at] * x[columns[at]];
    y[row] = sum;
}

// product = x · y: one block of 256 threads, which always adds in the same order.
extern "C" __global__ void dot(const double* x, const double* y, double* product, unsigned n) {
    __shared__ double sums[256];
    double sum = 0.0;
    for (unsigned i = threadIdx.x; i < n; i += 256) sum += x[i] * y[i];
    sums[threadIdx.x] = sum;
    for (unsigned half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) *product = sums[0];
}

// y = y + sign (a / b) x: a thread for each element. Its factor is made where it is used, so it never visits the host.
extern "C" __global__ void add_scaled(double* y, double sign, const double* a, const double* b, const double* x,
                                      unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += sign * (*a / *b) * x[i];
}

// y = x + (a / b) y: the same, the other way round.
extern "C" __global__ void turn(double* y, const double* a, const double* b, const double* x, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + (*a / *b) * y[i];
}
