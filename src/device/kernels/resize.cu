// Resizing with the triangle filter. Weights are integers, so nothing is rounded but the result, and sums may be taken in any order.

typedef unsigned long long u64;

// The inputs from `first` to before `end`, which make one output. Lengths are in parts of 1 / (2 * to) of an input, so that all are integers.
struct Taps {
    u64 to, centre, reach, first, end;

    // A triangle: `reach` at the centre of the output, nothing from that far away on.
    __device__ u64 weight(u64 j) const {
        u64 at = (2 * j + 1) * to;
        return reach - (at > centre ? at - centre : centre - at);
    }

    __device__ u64 total() const {
        u64 sum = 0;
        for (u64 j = first; j < end; j++) sum += weight(j);
        return sum;
    }
};

// Output i has its centre at (i + 1/2) * from / to, input j at j + 1/2. The triangle is as wide as two inputs or, where those are closer together,
// two outputs.
static __device__ Taps taps(u64 i, u64 from, u64 to) {
    Taps taps;
    taps.to = to;
    taps.centre = (2 * i + 1) * from;
    taps.reach = 2 * (from > to ? from : to);
    u64 end = (taps.centre + taps.reach + to - 1) / (2 * to);
    taps.first = taps.centre + to < taps.reach ? 0 : (taps.centre + to - taps.reach) / (2 * to);
    taps.end = end < from ? end : from;
    return taps;
}

// As many threads for each pixel of the result as there are lanes: 1, 2, 4, 8, 16 or 32, so that they are of one warp.
extern "C" __global__ void anabranch_resize(const unsigned char* __restrict__ pixels, unsigned char* __restrict__ out, unsigned from_width,
                                            unsigned from_height, unsigned to_width, unsigned to_height, unsigned lanes) {
    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x, count = (u64)to_width * to_height;
    unsigned lane = threadIdx.x % lanes;
    // Threads that are too many do the last pixel again: a warp adds its sums together, so none of it may leave before.
    u64 i = thread / lanes < count ? thread / lanes : count - 1;
    Taps x = taps(i % to_width, from_width, to_width), y = taps(i / to_width, from_height, to_height);
    u64 sums[3] = {0, 0, 0}, total = x.total() * y.total();
    for (u64 row = y.first; row < y.end; row++) {
        u64 height = y.weight(row);
        for (u64 column = x.first + lane; column < x.end; column += lanes) {
            const unsigned char* pixel = pixels + 3 * (row * from_width + column);
            u64 weight = height * x.weight(column);
            for (int c = 0; c < 3; c++) sums[c] += weight * pixel[c];
        }
    }
    for (int c = 0; c < 3; c++) {
        for (unsigned half = lanes / 2; half > 0; half /= 2) sums[c] += __shfl_down_sync(0xffffffff, sums[c], half, lanes);
        if (lane == 0 && thread / lanes < count) out[3 * i + c] = (unsigned char)((sums[c] + total / 2) / total);
    }
}
