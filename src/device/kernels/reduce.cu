// A step of a sum: each block adds 4096 elements, in an order that the number of elements alone decides.

#define LANES 256
#define ROWS 16

extern "C" __global__ void anabranch_reduce(const float* __restrict__ x, float* __restrict__ out, unsigned long long n, float divisor) {
    __shared__ float lanes[LANES];
    unsigned lane = threadIdx.x;
    unsigned long long first = (unsigned long long)blockIdx.x * (LANES * ROWS) + lane;
    float sum = 0.0f;
    for (int row = 0; row < ROWS; row++) {
        unsigned long long i = first + row * LANES;
        if (i < n) sum += x[i];
    }
    lanes[lane] = sum;
    __syncthreads();
    for (unsigned half = LANES / 2; half > 0; half /= 2) {
        if (lane < half) lanes[lane] += lanes[lane + half];
        __syncthreads();
    }
    if (lane == 0) out[blockIdx.x] = lanes[0] / divisor;
}
