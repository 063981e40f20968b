// Bytes of three channels that lie together become floats of three channels that lie apart, each scaled and shifted.

struct Affine {
    float scale, bias;
};

extern "C" __global__ void anabranch_normalise(const unsigned char* __restrict__ pixels, float* __restrict__ out,
                                               unsigned long long n, Affine red, Affine green, Affine blue) {
    unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = (float)pixels[3 * i] * red.scale + red.bias;
    out[n + i] = (float)pixels[3 * i + 1] * green.scale + green.bias;
    out[2 * n + i] = (float)pixels[3 * i + 2] * blue.scale + blue.bias;
}
