// Bilinear resizing in integers: positions and weights are fractions whose denominators are known, so nothing is rounded but the result.

typedef unsigned long long u64;

// The two inputs beside an output, and the weight of the second out of 2 * to.
struct Taps {
    u64 near, far, weight;
};

// Output i has its centre at (i + 1/2) * from / to - 1/2 = ((2 i + 1) * from - to) / (2 to) of the inputs. Before the first, it is at the first;
// after the last, that one is both of its neighbours.
static __device__ Taps taps(u64 i, u64 from, u64 to) {
    u64 centre = (2 * i + 1) * from, at = centre > to ? centre - to : 0;
    Taps taps;
    taps.near = at / (2 * to);
    taps.far = taps.near + 1 < from ? taps.near + 1 : taps.near;
    taps.weight = at - taps.near * 2 * to;
    return taps;
}

extern "C" __global__ void anabranch_resize(const unsigned char* __restrict__ pixels, unsigned char* __restrict__ out,
                                            unsigned from_width, unsigned from_height, unsigned to_width, unsigned to_height) {
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 width = to_width, height = to_height, row = from_width;
    if (i >= width * height) return;
    Taps x = taps(i % width, from_width, width), y = taps(i / width, from_height, height);
    u64 left = 2 * width - x.weight, top = 2 * height - y.weight;
    for (int c = 0; c < 3; c++) {
        const unsigned char *upper = pixels + 3 * y.near * row + c, *lower = pixels + 3 * y.far * row + c;
        u64 above = upper[3 * x.near] * left + upper[3 * x.far] * x.weight;
        u64 below = lower[3 * x.near] * left + lower[3 * x.far] * x.weight;
        u64 all = 4 * width * height;
        out[3 * i + c] = (unsigned char)((above * top + below * y.weight + all / 2) / all);
    }
}
