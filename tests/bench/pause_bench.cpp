// Measures how long the computing thread is interrupted while its state is hashed, written as a
// checkpoint and sent to other peers. Uses the actors of a peer without a network: one thread
// requests one pass after the other; at the same time another thread requests checkpoints and
// snapshots, and reads the chunks of the snapshots.
//
//   pause_bench [--width N] [--layers N] [--context N] [--seconds S] [--folder F]
//
// A gap is the time from the end of a pass to the beginning of the next one. It should not be
// longer than a copy of the state in memory, whose duration is printed, too.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <prometheus/registry.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include "actors/caf_error.hpp"
#include "actors/training/model_worker.hpp"
#include "runtime/core/disk.hpp"
#include "trainer/torch_learner.hpp"

namespace {

using namespace waggle;
using clock_type = std::chrono::steady_clock;
constexpr std::chrono::minutes patience{60};

double since(clock_type::time_point then) {
  return std::chrono::duration<double>(clock_type::now() - then).count();
}

/// Seconds to copy so many bytes: into newly allocated memory, as for a snapshot, and again into
/// the same memory.
std::pair<double, double> copy_seconds(std::size_t bytes) {
  std::vector<std::byte> from(bytes, std::byte{1});
  std::unique_ptr<std::byte[]> to{new std::byte[bytes]};
  auto began = clock_type::now();
  auto copy = [&] {
    std::memcpy(to.get(), from.data(), bytes);
    asm volatile("" : : "r"(to.get()) : "memory"); // prevents the compiler from removing the copy
  };
  copy();
  auto fresh = since(began);
  began = clock_type::now();
  copy();
  return {fresh, since(began)};
}

struct summary {
  std::vector<double> gaps; // seconds

  void print(const char* name) {
    std::sort(gaps.begin(), gaps.end());
    std::printf("%-42s %5zu passes, gaps: median %8.2f ms, longest %8.2f ms\n", name, gaps.size(),
                gaps.empty() ? 0 : gaps[gaps.size() / 2] * 1e3,
                gaps.empty() ? 0 : gaps.back() * 1e3);
  }
};

/// Requests one pass after the other for so many seconds.
summary pass_for(double seconds, caf::scoped_actor& self, const model_worker_actor& worker) {
  summary out;
  auto began = clock_type::now();
  auto ended = began; // end of the last pass
  bool first = true;
  while (since(began) < seconds) {
    self->send(worker, run_pass{std::nullopt});
    for (bool passed = false; !passed;)
      self->receive(
        [&](const pass_done& pass) {
          passed = true;
          if (!std::exchange(first, false))
            out.gaps.push_back(std::max(0.0, since(ended) - pass.seconds));
          ended = clock_type::now();
        },
        [](const update_applied&) { /* the next epoch, for the next snapshot */ });
  }
  return out;
}

/// Takes checkpoints and snapshots, and reads the snapshots like a donor, until it is stopped.
void take_copies(caf::actor_system& system, const model_worker_actor& worker, buffer_pool& buffers,
                 const std::atomic<bool>& stop, std::size_t& checkpoints, std::size_t& snapshots) {
  caf::scoped_actor self{system};
  auto fail = [](const caf::error& why) {
    std::fprintf(stderr, "pause_bench: %s\n", to_string(why).c_str());
    std::exit(1);
  };
  while (!stop) {
    self->request(worker, patience, save_checkpoint{})
      .receive([&](const state_snapshot&) { ++checkpoints; }, fail);
    // Begins a new epoch: within one epoch, all requests get the same snapshot.
    self->send(worker, apply_update{});
    self->request(worker, patience, get_state_snapshot{})
      .receive(
        [&](const state_snapshot& made) {
          ++snapshots;
          for (std::uint64_t at = 0; at < made.state->size() && !stop; at += 1_MiB) {
            auto bytes = std::min<std::uint64_t>(1_MiB, made.state->size() - at);
            if (auto chunk = made.state->piece(at, bytes, buffers); !chunk)
              fail(to_caf(chunk.error()));
          }
        },
        fail);
  }
}

int run(const learner_config& model, double seconds, const std::filesystem::path& folder) {
  caf::actor_system_config settings;
  caf::actor_system system{settings};
  auto files = make_system_disk();
  node_context ctx;
  ctx.wall = std::make_shared<system_wall_clock>();
  ctx.log = std::make_shared<spdlog::logger>("pause_bench",
                                             std::make_shared<spdlog::sinks::stderr_sink_mt>());
  ctx.metrics =
    std::make_shared<metric_families>(std::make_shared<prometheus::Registry>(), "pause", "pause");
  ctx.encoded_parts = buffer_pool::make(32_MiB);
  ctx.make_store = [files, folder] { return files->make_store(folder); };
  std::optional<checkpoint_store> kept{std::in_place, files, folder / "checkpoints"};

  caf::scoped_actor self{system};
  auto keeper = system.spawn<state_keeper, caf::detached>(ctx, kept);
  model_worker_actor worker = system.spawn<model_worker, caf::detached>(
    ctx, [model] { return make_torch_learner(model); }, kept, keeper,
    caf::actor_cast<model_listener_actor>(self));
  bool ready = false;
  self->request(worker, patience, make_model{})
    .receive(
      [&](const model_ready& made) {
        ready = true;
        auto bytes = made.model->tensors().image_bytes();
        auto [fresh, again] = copy_seconds(bytes);
        std::printf("%llu parameters, a state of %.0f MiB; copying it takes %.0f ms into fresh "
                    "memory, %.0f ms into memory in use\n",
                    static_cast<unsigned long long>(made.model->parameter_count()),
                    static_cast<double>(bytes) / (1 << 20), fresh * 1e3, again * 1e3);
      },
      [](const caf::error& why) {
        std::fprintf(stderr, "pause_bench: %s\n", to_string(why).c_str());
      });
  if (!ready)
    return 1;
  pass_for(1, self, worker); // warm-up
  pass_for(seconds, self, worker).print("undisturbed");
  std::atomic<bool> stop{false};
  std::size_t checkpoints = 0;
  std::size_t snapshots = 0;
  std::thread copies{
    [&] { take_copies(system, worker, *ctx.encoded_parts, stop, checkpoints, snapshots); }};
  auto busy = pass_for(seconds, self, worker);
  stop = true;
  // The worker still answers the last requests of this thread.
  copies.join();
  busy.print("with hashing, checkpoints and a reader");
  std::printf("%zu checkpoints, %zu snapshots\n", checkpoints, snapshots);
  for (const auto& one : {caf::actor_cast<caf::actor>(worker), caf::actor_cast<caf::actor>(keeper)})
    caf::anon_send_exit(one, caf::exit_reason::user_shutdown);
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  learner_config model;
  model.model = "mlp";
  model.width = 5000;
  model.layers = 5;
  model.context = 16;
  model.micro_batch = 1;
  model.device = "cpu";
  double seconds = 20;
  std::filesystem::path parent = std::filesystem::temp_directory_path();
  CLI::App options{
    "Measures gaps between passes while the state is copied, hashed, saved and sent."};
  options.add_option("--width", model.width);
  options.add_option("--layers", model.layers);
  options.add_option("--context", model.context);
  options.add_option("--seconds", seconds, "duration of each half");
  options.add_option("--folder", parent, "folder on the disk to write to");
  CLI11_PARSE(options, argc, argv);
  auto folder = (parent / "waggle-pause-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) {
    std::fprintf(stderr, "pause_bench: cannot create a folder in %s\n", parent.c_str());
    return 1;
  }
  auto code = run(model, seconds, folder);
  std::filesystem::remove_all(folder);
  return code;
}
