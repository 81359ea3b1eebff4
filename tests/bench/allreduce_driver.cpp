// One rank of an all-reduce among `WORLD` processes, for comparisons with other libraries:
//
//   allreduce_driver RANK WORLD BYTES WARMUP ITERS DIR      (BENCH_ADDR: address to listen on)
//
// Writes the file DIR/RANK: "t <start> <end>" for each timed iteration (CLOCK_MONOTONIC), "cpu
// <seconds>" of the process during these iterations, "setup <seconds>", "rss_kib <peak>", "error
// <largest>". Element i of the vector of rank r is (7i + 13r) mod 1000, so sums are exact in
// float32; the result is their mean.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <thread>

#include <sys/resource.h>

#include "actors/caf_error.hpp"
#include "actors/program/node_options.hpp"
#include "actors/program/peer_process.hpp"
#include "runtime/cli/signals.hpp"

namespace {

using namespace waggle;

double monotonic() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

rusage usage() {
  rusage r{};
  getrusage(RUSAGE_SELF, &r);
  return r;
}

double cpu_seconds() {
  auto r = usage();
  auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(r.ru_utime) + seconds(r.ru_stime);
}

float value_of(std::size_t rank, std::size_t i) {
  return static_cast<float>((i * 7 + rank * 13) % 1000);
}

/// Rank 0 writes its address to a file; the other ranks wait for this file and read it.
endpoint meet(const std::filesystem::path& folder, std::size_t rank, const endpoint& bound) {
  auto file = folder / "address";
  if (rank == 0) {
    std::ofstream{folder / "address.new"} << to_string(bound) << "\n";
    std::filesystem::rename(folder / "address.new", file);
    return bound;
  }
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    if (std::ifstream in{file}; in >> text)
      if (auto where = parse_endpoint(text))
        return *where;
    std::this_thread::sleep_for(10ms);
  }
  throw std::runtime_error("rank 0 did not write its address within 30 seconds");
}

int run(std::size_t rank, std::size_t world, std::size_t bytes, int warmup, int iterations,
        const std::filesystem::path& folder) {
  auto began = monotonic();
  run_options options;
  const char* log_level = std::getenv("BENCH_LOG_LEVEL");
  options.log_level = log_level != nullptr ? log_level : "warn";
  options.data_dir = folder / ("data-" + std::to_string(rank));
  const char* address = std::getenv("BENCH_ADDR");
  options.listen = {{address != nullptr ? address : "127.0.0.1", 0}};
  options.given["data-dir"] = options.data_dir.string();
  if (const char* codec = std::getenv("BENCH_CODEC"))
    options.averaging.codec = parse_codec_choice(codec).value();
  if (const char* bandwidth = std::getenv("BENCH_BANDWIDTH")) // switches the measurement off
    options.bandwidth = std::strtoull(bandwidth, nullptr, 10);
  if (const char* part = std::getenv("BENCH_PART_BYTES"))
    options.part_bytes = std::strtoul(part, nullptr, 10);
  if (const char* congestion = std::getenv("BENCH_CONGESTION"))
    options.congestion = congestion;
  if (const char* encrypt = std::getenv("BENCH_ENCRYPT"))
    options.encrypts = std::string_view{encrypt} != "never";
  if (const char* shared = std::getenv("BENCH_SHARED_MEMORY"))
    options.shared_memory = std::string_view{shared} != "0";
  if (rank > 0)
    options.initial_peers = {meet(folder, rank, {})};
  auto process = peer_process::prepare(options);
  if (!process)
    throw std::runtime_error(process.error().detail);
  auto config = (*process)->base_config();
  options.reduce_threads = 0; // the ranks share the cores
  config.averaging = averaging_from(options, "bench", "vector", {});
  auto peer = (*process)->start(config);
  if (!peer)
    throw std::runtime_error(peer.error().detail);
  (*process)->print_start(config, *peer, false);
  // Also needed when a round fails, or the process would wait for its actors forever.
  struct farewell {
    node_actor node;
    ~farewell() { caf::anon_send(node, shut_down{"done"}); }
  } at_the_end{peer->node};
  if (rank == 0)
    meet(folder, 0, peer->bound);

  auto elements = bytes / sizeof(float);
  auto values = peer->ctx.vectors->take(elements);
  for (std::size_t i = 0; i < elements; ++i)
    (*values)[i] = value_of(rank, i);
  average_vector question{.values = values,
                          .deadline = 60s,
                          .expected_peers = static_cast<std::uint32_t>(world),
                          .reuse_group = true};

  caf::scoped_actor self{(*process)->system()};
  std::vector<std::pair<double, double>> times;
  std::shared_ptr<const float_vector> result;
  double setup = 0;
  double cpu = 0;
  for (int i = 0; i < warmup + iterations; ++i) {
    if (i == warmup) {
      setup = monotonic() - began;
      cpu = cpu_seconds();
    }
    result.reset();
    auto start = monotonic();
    std::string trouble;
    self->request(peer->parts.averager, 70s, question)
      .receive(
        [&](const round_report& report) {
          result = report.values;
          if (report.outcome != round_outcome::complete || report.contributors.size() != world)
            trouble = "a round was not complete: " + to_string(report.why);
        },
        [&](const caf::error& why) { trouble = to_string(from_caf(why)); });
    if (!trouble.empty())
      throw std::runtime_error(trouble);
    if (i >= warmup)
      times.emplace_back(start, monotonic());
  }
  cpu = cpu_seconds() - cpu;
  double worst = 0;
  for (std::size_t i = 0; i < elements; ++i) {
    double want = 0;
    for (std::size_t r = 0; r < world; ++r)
      want += static_cast<double>(value_of(r, i));
    auto error = std::abs(static_cast<double>((*result)[i]) * static_cast<double>(world) - want);
    worst = std::isnan(error) ? 1e30 : std::max(worst, error);
  }
  auto* out = std::fopen((folder / std::to_string(rank)).c_str(), "w");
  if (out == nullptr)
    throw std::runtime_error("cannot write the record");
  for (const auto& [start, end] : times)
    std::fprintf(out, "t %.9f %.9f\n", start, end);
  std::fprintf(out, "cpu %.6f\nsetup %.6f\nrss_kib %ld\nerror %g\n", cpu, setup, usage().ru_maxrss,
               worst);
  std::fclose(out);
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  if (argc != 7) {
    std::cerr << "usage: allreduce_driver RANK WORLD BYTES WARMUP ITERS DIR\n";
    return 2;
  }
  ignore_broken_pipes();
  try {
    return run(std::strtoul(argv[1], nullptr, 10), std::strtoul(argv[2], nullptr, 10),
               std::strtoul(argv[3], nullptr, 10), std::atoi(argv[4]), std::atoi(argv[5]), argv[6]);
  } catch (const std::exception& e) {
    std::cerr << "rank " << argv[1] << ": " << e.what() << "\n";
    return 1;
  }
}
