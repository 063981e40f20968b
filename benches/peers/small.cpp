// Measures what small graphs cost oneTBB's flow graph, or Taskflow if TASKFLOW is defined.
//
// Usage: small empty|one|chain|fan|handover|loop THREADS MULTIPLICATIONS
// Prints: ns of a run (a handover: without its node), or of an iteration of the loop; nan if there is no such
// graph.
//
// MULTIPLICATIONS take 50 ns. Graphs are built once and run many times; the thread that runs one waits for it.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#ifdef TASKFLOW
#include <taskflow/taskflow.hpp>
#else
#include <tbb/flow_graph.h>
#include <tbb/global_control.h>
#endif

using Clock = std::chrono::steady_clock;

constexpr int kChain = 10, kFan = 8, kFanUnits = 400, kHandedUnits = 1000, kIterations = 100000;

uint64_t multiplications = 0;

// The ns of all work that timed itself: what is printed leaves it out.
std::atomic<uint64_t> timed_ns{0};

double ns_since(Clock::time_point start) {
    return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

void work(uint64_t units) {
    uint64_t word = 1;
    asm volatile("" : "+r"(word));
    for (uint64_t i = 0; i < multiplications * units; i++) word = (word ^ (word >> 27)) * 0x94d049bb133111ebull;
    asm volatile("" : : "r"(word));
}

void timed_work(uint64_t units) {
    const auto start = Clock::now();
    work(units);
    timed_ns += static_cast<uint64_t>(ns_since(start));
}

#ifdef TASKFLOW

class Graph {
public:
    explicit Graph(int threads) : executor_(threads) {}

    using Node = tf::Task;
    template <class F>
    Node add(F body, const std::vector<Node>& before) {
        Node node = flow_.emplace(body);
        for (Node preceding : before) preceding.precede(node);
        return node;
    }

    // The body, then a condition that leads back to it.
    bool loop() {
        Node init = flow_.emplace([this] { count_ = 0; });
        Node body = flow_.emplace([this] { count_++; });
        Node more = flow_.emplace([this] { return count_ < kIterations ? 0 : 1; });
        Node end = flow_.emplace([] {});
        init.precede(body);
        body.precede(more);
        more.precede(body, end);
        return true;
    }

    void run() { executor_.run(flow_).wait(); }

private:
    tf::Executor executor_;
    tf::Taskflow flow_;
    int count_ = 0;
};

#else

namespace flow = tbb::flow;

class Graph {
public:
    // The thread that waits works, too.
    explicit Graph(int threads) : threads_(tbb::global_control::max_allowed_parallelism, threads) {}

    using Node = flow::continue_node<flow::continue_msg>*;
    template <class F>
    Node add(F body, const std::vector<Node>& before) {
        using Made = flow::continue_node<flow::continue_msg>;
        nodes_.push_back(std::make_unique<Made>(graph_, [body](const flow::continue_msg&) { body(); }));
        Node node = nodes_.back().get();
        for (Node preceding : before) flow::make_edge(*preceding, *node);
        if (before.empty()) roots_.push_back(node);
        return node;
    }

    bool loop() { return false; }

    void run() {
        for (Node root : roots_) root->try_put(flow::continue_msg());
        graph_.wait_for_all();
    }

private:
    tbb::global_control threads_;
    flow::graph graph_;
    std::vector<std::unique_ptr<flow::continue_node<flow::continue_msg>>> nodes_;
    std::vector<Node> roots_;
};

#endif

double ns_per_run(Graph& graph, int runs) {
    for (int run = 0; run < runs / 10; run++) graph.run();
    const auto start = Clock::now();
    const uint64_t timed = timed_ns;
    for (int run = 0; run < runs; run++) graph.run();
    return (ns_since(start) - static_cast<double>(timed_ns - timed)) / runs;
}

int main(int argc, char** argv) {
    if (argc != 4) return std::fprintf(stderr, "usage: small ROW THREADS MULTIPLICATIONS\n"), 1;
    const std::string row = argv[1];
    Graph graph(std::atoi(argv[2]));
    multiplications = std::strtoull(argv[3], nullptr, 10);
    int runs = 2000;
    double iterations = 1;
    volatile uint64_t x = 0;
    if (row == "empty") {
        graph.add([] {}, {});
    } else if (row == "one") {
        // Input and output are a variable beside the graph, as is usual.
        graph.add([&x] { x = x + 1; }, {});
    } else if (row == "chain") {
        std::vector<Graph::Node> before;
        for (int node = 0; node < kChain; node++) before = {graph.add([] { work(1); }, before)};
    } else if (row == "fan") {
        runs = 100;
        const auto root = graph.add([] { work(kFanUnits); }, {});
        std::vector<Graph::Node> leaves;
        for (int leaf = 0; leaf < kFan; leaf++) leaves.push_back(graph.add([] { work(kFanUnits); }, {root}));
        graph.add([] { work(kFanUnits); }, leaves);
    } else if (row == "handover") {
        graph.add([] { timed_work(kHandedUnits); }, {});
    } else if (row == "loop") {
        runs = 20;
        iterations = kIterations;
        if (!graph.loop()) return std::printf("nan\n"), 0;
    } else {
        return std::fprintf(stderr, "no such row: %s\n", row.c_str()), 1;
    }
    std::printf("%.3f\n", ns_per_run(graph, runs) / iterations);
}
