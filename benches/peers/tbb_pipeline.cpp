// Measures oneTBB's parallel_pipeline: one filter per task, between one that makes the items and one that takes them.
//
// Usage: tbb_pipeline THREADS TOKENS TASKS none|middle|all WORK_NS TARGET_MS
// Prints: ns per item.
//
// An item is a u64, which oneTBB passes without an allocation; a task adds 1. The first and the last filter are serial and
// in order. So are the filters of no task, of the middle one or of all; these count their items. The other filters are
// parallel. WORK_NS is how long each task spins. A pass that is not timed says how many items take TARGET_MS.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <tbb/global_control.h>
#include <tbb/parallel_pipeline.h>

using Clock = std::chrono::steady_clock;
using Items = tbb::filter<void, uint64_t>;

// As in paced.rs.
constexpr uint64_t kItemsMin = 10'000, kWorkingItemsMin = 100, kItemsMax = 5'000'000;

[[noreturn]] void fail(const char* what) {
    std::fprintf(stderr, "%s\n", what);
    std::exit(1);
}

struct Chain {
    size_t tokens;
    int tasks;
    std::string serial;
    uint64_t work_ns;

    bool is_serial(int task) const { return serial == "all" || (serial == "middle" && task == tasks / 2); }
};

// Keeps this core busy until `ns` have passed on the clock that bodies.rs watches too.
void spin(uint64_t ns) {
    if (ns == 0) return;
    const auto end = Clock::now() + std::chrono::nanoseconds(ns);
    while (Clock::now() < end) {
    }
}

// Runs a number of items through the chain. Returns the ns of each.
double run(const Chain& chain, uint64_t items) {
    uint64_t next = 0, sum = 0;
    std::vector<uint64_t> counts(chain.tasks);
    Items filters = tbb::make_filter<void, uint64_t>(tbb::filter_mode::serial_in_order, [&](tbb::flow_control& control) {
        if (next < items) return next++;
        control.stop();
        return uint64_t{0};
    });
    for (int task = 0; task < chain.tasks; task++) {
        const uint64_t work_ns = chain.work_ns;
        if (chain.is_serial(task)) {
            filters = filters & tbb::make_filter<uint64_t, uint64_t>(tbb::filter_mode::serial_in_order,
                                                                     [&count = counts[task], work_ns](uint64_t item) {
                                                                         count++;
                                                                         spin(work_ns);
                                                                         return item + 1;
                                                                     });
        } else {
            filters = filters & tbb::make_filter<uint64_t, uint64_t>(tbb::filter_mode::parallel, [work_ns](uint64_t item) {
                          spin(work_ns);
                          return item + 1;
                      });
        }
    }
    const auto last = tbb::make_filter<uint64_t, void>(tbb::filter_mode::serial_in_order, [&](uint64_t item) { sum += item; });
    const auto start = Clock::now();
    tbb::parallel_pipeline(chain.tokens, filters & last);
    const double took = std::chrono::duration<double, std::nano>(Clock::now() - start).count();
    if (sum != items * (items - 1) / 2 + chain.tasks * items) fail("every task must see every item once");
    for (int task = 0; task < chain.tasks; task++) {
        if (chain.is_serial(task) && counts[task] != items) fail("every serial task must see every item once");
    }
    return took / items;
}

int main(int argc, char** argv) {
    if (argc != 7) fail("usage: tbb_pipeline THREADS TOKENS TASKS none|middle|all WORK_NS TARGET_MS");
    // Counts the calling thread, which works too while it waits.
    tbb::global_control threads(tbb::global_control::max_allowed_parallelism, std::atoi(argv[1]));
    const Chain chain{std::strtoull(argv[2], nullptr, 10), std::atoi(argv[3]), argv[4], std::strtoull(argv[5], nullptr, 10)};
    const uint64_t least = chain.work_ns == 0 ? kItemsMin : kWorkingItemsMin;
    const double target_ns = 1e6 * std::atof(argv[6]);
    const uint64_t items = std::clamp(static_cast<uint64_t>(target_ns / run(chain, least)), least, kItemsMax);
    std::printf("%.3f\n", run(chain, items));
}
