// Measures oneTBB's flow graph: one continue_node per node, built once, run many times.
//
// Usage: tbb GRAPH WORKERS empty|values WORK_NS RUNS check|trust
// Prints: median ns per node, sum of the values after the first run (0 without values).
//
// GRAPH is a file of native uint32: node count, edge count, starts (nodes + 1), predecessors (edges); see shapes.rs.
//
// The nodes have no `lightweight` policy: it runs a successor inside its predecessor, which makes empty nodes cheap, but
// then nothing runs in parallel (fan, 2 workers, 5 us of work: 5.1 us per node) and a chain of 10^6 overflows the stack.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include <tbb/flow_graph.h>
#include <tbb/global_control.h>

namespace flow = tbb::flow;
using Clock = std::chrono::steady_clock;
using Node = flow::continue_node<flow::continue_msg>;

constexpr int kCountedRuns = 3;

[[noreturn]] void fail(const std::string& what) {
    std::fprintf(stderr, "%s\n", what.c_str());
    std::exit(1);
}

// The predecessors of node i are preds[starts[i]] to preds[starts[i + 1]], all of them smaller than i.
struct Shape {
    std::vector<uint32_t> starts, preds;

    uint32_t nodes() const { return starts.size() - 1; }
    uint32_t pred_count(uint32_t node) const { return starts[node + 1] - starts[node]; }
};

void read_words(std::FILE* file, std::vector<uint32_t>& words) {
    if (std::fread(words.data(), sizeof(uint32_t), words.size(), file) != words.size()) fail("the graph file is too short");
}

Shape read_shape(const char* path) {
    std::FILE* file = std::fopen(path, "rb");
    if (!file) fail(std::string("cannot open ") + path);
    std::vector<uint32_t> counts(2);
    read_words(file, counts);
    Shape shape{std::vector<uint32_t>(counts[0] + 1), std::vector<uint32_t>(counts[1])};
    read_words(file, shape.starts);
    read_words(file, shape.preds);
    std::fclose(file);
    return shape;
}

// Keeps this core busy until `ns` have passed on the clock that job.rs watches too.
void spin(uint64_t ns) {
    if (ns == 0) return;
    const auto end = Clock::now() + std::chrono::nanoseconds(ns);
    while (Clock::now() < end) {
    }
}

class Graph {
public:
    // `body(i)` is what node i does.
    template <class MakeBody>
    Graph(const Shape& shape, MakeBody body) {
        // Reserved, so that the nodes lie side by side and never move.
        nodes_.reserve(shape.nodes());
        for (uint32_t i = 0; i < shape.nodes(); i++) nodes_.emplace_back(graph_, body(i));
        for (uint32_t i = 0; i < shape.nodes(); i++) {
            for (uint32_t k = shape.starts[i]; k < shape.starts[i + 1]; k++) flow::make_edge(nodes_[shape.preds[k]], nodes_[i]);
            if (shape.pred_count(i) == 0) roots_.push_back(i);
        }
    }

    void run() {
        for (uint32_t root : roots_) nodes_[root].try_put(flow::continue_msg());
        graph_.wait_for_all();
    }

private:
    flow::graph graph_;
    std::vector<Node> nodes_;
    std::vector<uint32_t> roots_;
};

void check_counts(const Shape& shape) {
    std::vector<std::atomic<int>> counts(shape.nodes());
    Graph graph(shape, [&](uint32_t i) {
        return [&count = counts[i]](const flow::continue_msg&) { count.fetch_add(1, std::memory_order_relaxed); };
    });
    for (int run = 0; run < kCountedRuns; run++) graph.run();
    for (const auto& count : counts) {
        if (count != kCountedRuns) fail("every node must run exactly once per run");
    }
}

double median_ns_per_node(Graph& graph, uint32_t nodes, int runs) {
    std::vector<double> figures;
    for (int run = 0; run < runs; run++) {
        const auto start = Clock::now();
        graph.run();
        figures.push_back(std::chrono::duration<double, std::nano>(Clock::now() - start).count() / nodes);
    }
    std::sort(figures.begin(), figures.end());
    return (figures[(runs - 1) / 2] + figures[runs / 2]) / 2;
}

int main(int argc, char** argv) {
    if (argc != 7) fail("usage: tbb GRAPH WORKERS empty|values WORK_NS RUNS check|trust");
    const Shape shape = read_shape(argv[1]);
    const bool has_values = std::string(argv[3]) == "values";
    const uint64_t work_ns = std::strtoull(argv[4], nullptr, 10);
    const int runs = std::atoi(argv[5]);
    // Counts the calling thread, which works too while it waits.
    tbb::global_control workers(tbb::global_control::max_allowed_parallelism, std::atoi(argv[2]));
    if (std::string(argv[6]) == "check") check_counts(shape);

    // Values pass through an array, as is usual with continue_node: messages carry nothing, edges give the order.
    std::vector<uint64_t> values(shape.nodes());
    const auto empty = [work_ns](uint32_t) { return [work_ns](const flow::continue_msg&) { spin(work_ns); }; };
    const auto adding = [&, work_ns](uint32_t i) {
        const uint32_t *begin = shape.preds.data() + shape.starts[i], *end = begin + shape.pred_count(i);
        return [begin, end, cells = values.data(), i, work_ns](const flow::continue_msg&) {
            cells[i] = std::accumulate(begin, end, uint64_t{1}, [cells](uint64_t sum, uint32_t pred) { return sum + cells[pred]; });
            spin(work_ns);
        };
    };
    Graph graph = has_values ? Graph(shape, adding) : Graph(shape, empty);
    graph.run();
    const uint64_t checksum = std::accumulate(values.begin(), values.end(), uint64_t{0});
    std::printf("%.3f %llu\n", median_ns_per_node(graph, shape.nodes(), runs), static_cast<unsigned long long>(checksum));
}
