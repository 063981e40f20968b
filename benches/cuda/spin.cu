// Runs for so many nanoseconds. On some GPUs the timer moves by a microsecond at a time.
__device__ unsigned long long now() {
    unsigned long long ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

extern "C" __global__ void spin(unsigned long long ns) {
    unsigned long long start = now();
    while (now() - start < ns) {}
}
