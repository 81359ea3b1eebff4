// Benchmarks with whole peers in this process that communicate over TCP on the loopback interface.

#include <cstdio>
#include <functional>

#include <nlohmann/json.hpp>

#include "actors/caf_error.hpp"
#include "actors/program/commands.hpp"
#include "actors/program/node_options.hpp"
#include "actors/program/peer_process.hpp"
#include "actors/service/machine.hpp"
#include "runtime/cli/logging.hpp"
#include "runtime/core/try.hpp"

namespace waggle {

namespace {

using json = nlohmann::ordered_json;

struct quiet_system : caf::actor_system_config {
  quiet_system() { set("scheduler.policy", caf::atom("sharing")); }
};

/// The peers of a separate run. The first peer is the initial peer of the others.
class local_peers {
public:
  explicit local_peers(const run_options& options) : options_(options) {}
  ~local_peers() {
    caf::scoped_actor self{system_};
    for (auto& peer : peers_)
      self->request(peer.node, 5s, shut_down{"the benchmark is over"})
        .receive([](const training_status&) { /* down */ },
                 [](const caf::error&) { /* down already */ });
  }
  local_peers(const local_peers&) = delete;
  local_peers& operator=(const local_peers&) = delete;

  status add(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      node_config config{
        .run_id = "bench", .listen = {{"127.0.0.1", 0}}, .seed = peers_.size() + 1};
      if (!peers_.empty())
        config.initial_peers = {peers_.front().bound};
      config.averaging = averaging_from(options_, "bench", "vector", {});
      auto& averaging = config.averaging->averaging;
      if (!options_.reduce_threads) // the peers of one process share the cores
        averaging.part_workers = 0;
      else // so that it shows what small sums in other threads cost, too
        averaging.round.offload_elements = 1;
      net::tcp_transport_config tcp;
      tcp.shared_memory = options_.shared_memory;
      auto dependencies = machine_dependencies({}, identity::from_seed(config.seed), log_,
                                               config.run_id, {}, std::move(tcp));
      WAGGLE_TRY(started, start_node(system_, config, dependencies));
      peers_.push_back(*started);
    }
    return done{};
  }

  /// All peers average a vector at once. Fails if a round was not complete.
  struct outcome {
    bench_timing timing;            // until the last peer had the result
    double matchmaking_seconds = 0; // of the slowest
  };
  result<outcome> average(average_vector question) {
    caf::scoped_actor self{system_};
    question.expected_peers = static_cast<std::uint32_t>(peers_.size());
    bench_stopwatch watch;
    using handle = decltype(self->request(peers_[0].parts.averager, 1s, question));
    std::vector<handle> open;
    for (auto& peer : peers_)
      open.push_back(self->request(peer.parts.averager, question.deadline + 10s, question));
    outcome out;
    failure why;
    for (auto& answer : open)
      answer.receive(
        [&](const round_report& report) {
          if (report.outcome != round_outcome::complete)
            why = report.why.code == ec::none ? failure{ec::internal, {}} : report.why;
          out.matchmaking_seconds = std::max(out.matchmaking_seconds, report.matchmaking_seconds);
        },
        [&](const caf::error& error) { why = from_caf(error); });
    out.timing = watch.elapsed();
    if (why.code != ec::none)
      return why;
    return out;
  }

private:
  const run_options& options_;
  std::shared_ptr<spdlog::logger> log_ = make_logger("warn", "text", "bench", "");
  quiet_system config_;
  caf::actor_system system_{config_};
  std::vector<started_node> peers_;
};

average_vector question_of(std::uint64_t bytes) {
  auto values = std::make_shared<float_vector>(bytes / sizeof(float));
  for (std::size_t i = 0; i < values->size(); ++i)
    (*values)[i] = static_cast<float>(i % 1000) / 1000;
  return {.values = values, .deadline = 60s};
}

std::string size_text(std::uint64_t bytes) {
  return bytes >= 1_MiB ? std::to_string(bytes >> 20U) + " MiB"
                        : std::to_string(bytes >> 10U) + " KiB";
}

/// Calls `measure` with peers of each number, those of --peers or `counts`, and the report. Writes
/// the report.
int for_each_count(const run_options& options, std::vector<std::uint64_t> counts, const char* title,
                   const std::function<status(local_peers&, std::uint64_t, json&)>& measure) {
  auto output = bench_output::open(options);
  if (!output)
    return bad_usage(output.error().detail);
  if (options.given.count("peers") > 0)
    counts = {options.peers};
  std::printf("%s", title);
  auto report = json::array();
  for (auto count : counts) {
    local_peers peers{options};
    auto measured = peers.add(count);
    if (measured)
      measured = measure(peers, count, report);
    if (!measured) {
      std::fprintf(stderr, "waggle: the benchmark failed: %s\n",
                   to_string(measured.error()).c_str());
      return exit_failed;
    }
  }
  return (*output)->write(report);
}

int bench_allreduce(const run_options& options) {
  std::vector<std::uint64_t> sizes{64_KiB, 1_MiB, 16_MiB, 64_MiB};
  if (options.given.count("elements") > 0)
    sizes = {options.elements * sizeof(float)};
  auto measure = [&](local_peers& peers, std::uint64_t count, json& report) -> status {
    for (auto bytes : sizes) {
      auto question = question_of(bytes);
      question.reuse_group = true;
      std::vector<bench_timing> runs;
      auto wanted = bytes >= 16_MiB ? 11U : 101U;
      for (unsigned i = 0; i < wanted + 2; ++i) {
        WAGGLE_TRY(ended, peers.average(question));
        if (i >= 2) // warm-up: the peers find each other and fill the pools
          runs.push_back(ended->timing);
      }
      json row = summary_of(runs);
      row["peers"] = count;
      row["bytes"] = bytes;
      row["codec"] = to_string(options.averaging.codec);
      auto median = row["median_seconds"].get<double>();
      std::printf("%6llu %10s %9.3f ms %9.3f ms %9.3f ms %14.0f\n",
                  static_cast<unsigned long long>(count), size_text(bytes).c_str(), median * 1e3,
                  row["p25_seconds"].get<double>() * 1e3, row["p75_seconds"].get<double>() * 1e3,
                  static_cast<double>(bytes) / median / 1e6);
      std::fflush(stdout);
      report.push_back(std::move(row));
    }
    return done{};
  };
  auto title = "rounds of one group in this process, codec " + to_string(options.averaging.codec)
               + "\n peers     vector       median         25 %         75 %  MB/s per peer\n";
  return for_each_count(options, {2, 4, 8}, title.c_str(), measure);
}

int bench_matchmaking(const run_options& options) {
  auto measure = [](local_peers& peers, std::uint64_t count, json& report) -> status {
    std::vector<bench_timing> runs;
    for (unsigned i = 0; i < 11; ++i) {
      WAGGLE_TRY(ended, peers.average(question_of(4_KiB)));
      if (i > 0) // warm-up: the first one also connects all peers
        runs.push_back({ended->matchmaking_seconds, ended->timing.cpu_seconds});
    }
    json row = summary_of(runs);
    row["peers"] = count;
    std::printf("%6llu %9.1f ms %9.1f ms %9.1f ms\n", static_cast<unsigned long long>(count),
                row["median_seconds"].get<double>() * 1e3, row["p25_seconds"].get<double>() * 1e3,
                row["p75_seconds"].get<double>() * 1e3);
    std::fflush(stdout);
    report.push_back(std::move(row));
    return done{};
  };
  return for_each_count(options, {2, 4, 8, 16},
                        "time from the request to a group of all peers, in this process\n"
                        " peers       median         25 %         75 %\n",
                        measure);
}

} // namespace

bench_entry allreduce_benchmark() {
  return {"allreduce", "rounds of 2, 4 and 8 local peers over TCP, or of --peers with --elements",
          "waggle bench allreduce --peers 4 --elements 16777216 --codec float16", bench_allreduce};
}

bench_entry matchmaking_benchmark() {
  return {"matchmaking", "the time until 2 to 16 local peers, or --peers, have found each other",
          "waggle bench matchmaking --peers 8", bench_matchmaking};
}

} // namespace waggle
