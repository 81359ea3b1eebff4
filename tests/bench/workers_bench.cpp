// One reducer of a round of two members that owns all parts of a vector of 64 MiB: the time from
// the first contribution to the end of the round, by the number of its compute_workers. 0: the
// thread that delivers the contributions reduces them.
//
// `slow` adds 2 ms of sleep to each sum, in place of a costly aggregator on a core of its own: a
// machine with two cores cannot show what four would gain.

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

#include <benchmark/benchmark.h>

#include "actors/averaging/allreduce_round.hpp"
#include "actors/averaging/compute_worker.hpp"
#include "actors/caf_error.hpp"
#include "tests/support/test_context.hpp"

namespace {

using namespace waggle;

constexpr std::uint64_t elements = 1U << 24U;
constexpr std::uint32_t part_elements = 1U << 17U;

/// What happens to the round, for the thread that measures.
struct outcome {
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t results_sent = 0;
  std::optional<digest> prepared; // what the reducer reports to hold
  bool over = false;
  bool complete = false;

  template <class Change>
  void note(Change change) {
    std::lock_guard guard{mutex};
    change();
    changed.notify_all();
  }
  template <class Condition>
  void wait(Condition condition) {
    std::unique_lock guard{mutex};
    changed.wait(guard, condition);
  }
};

switchboard_actor::behavior_type counting_switchboard(switchboard_actor::pointer, outcome* seen) {
  return {
    [](const call_peer&) -> caf::result<peer_answer> { return to_caf(ec::unreachable); },
    [seen](const notify_peer& msg) {
      if (std::holds_alternative<wire::part>(msg.what))
        seen->note([&] { ++seen->results_sent; });
      if (const auto* prepared = std::get_if<wire::round_prepared>(&msg.what))
        seen->note([&] { seen->prepared = prepared->result; });
    },
    [](const connect_address&) -> caf::result<peer_connected> { return to_caf(ec::unreachable); },
  };
}

round_listener_actor::behavior_type waiting_listener(round_listener_actor::pointer, outcome* seen) {
  return {[seen](const round_finished& how) {
            seen->note([&] {
              seen->over = true;
              seen->complete = how.report.outcome == round_outcome::complete;
            });
          },
          [](const group_message&) {}};
}

round_plan plan_of(const node_context& ctx, std::uint64_t number) {
  round_plan plan;
  plan.prefix = "bench";
  std::memcpy(plan.id.bytes.data(), &number, sizeof number);
  plan.id.bytes.back() = std::byte{1};
  plan.members = {{ctx.record, member_mode::node}, {testing::test_peer(2), member_mode::node}};
  plan.elements = elements;
  plan.part_elements = part_elements;
  plan.shares = {elements, 0};
  plan.codecs = {{elements, codec_id::none}};
  plan.gathered.resize(2);
  return plan;
}

void round_of_a_reducer(benchmark::State& state, bool slow) {
  caf::actor_system_config config;
  config.set("scheduler.policy", caf::atom("sharing"));
  config.set("scheduler.max-threads", std::size_t{2});
  caf::actor_system system{config};
  outcome seen;
  auto ctx = testing::test_context(1, std::make_shared<testing::manual_clock>());
  auto board = system.spawn(counting_switchboard, &seen);
  auto listener = system.spawn(waiting_listener, &seen);
  auto worker = [slow]() -> compute_worker_actor::behavior_type {
    return {[slow](const run_job& what) {
      if (slow)
        std::this_thread::sleep_for(std::chrono::milliseconds{2});
      return job_done{what.job()};
    }};
  };
  round_handles handles{board, listener, {}};
  for (std::int64_t i = 0; i < state.range(0); ++i)
    handles.workers.push_back(system.spawn<caf::detached>(worker));
  auto values = std::make_shared<const float_vector>(elements, 0.5F);
  std::uint64_t number = 0;
  for (auto _ : state) { // NOLINT(clang-analyzer-deadcode.DeadStores)
    auto plan = plan_of(ctx, ++number);
    seen.note([&] { seen.results_sent = 0, seen.over = false, seen.prepared.reset(); });
    auto round = system.spawn<allreduce_round>( // held: nothing else keeps it alive
      ctx, round_config{}, round_request{plan, 0, values, 1.0}, handles);
    auto other = plan.members[1].peer;
    for (std::uint32_t part = 0; part < elements / part_elements; ++part) {
      wire::part head;
      head.round = plan.id;
      head.kind = wire::part_kind::contribution;
      head.index = part;
      head.offset = std::uint64_t{part} * part_elements;
      head.count = part_elements;
      head.weight = 1;
      const auto* at = reinterpret_cast<const std::byte*>(values->data() + head.offset);
      ctx.rounds->deliver({other, head, {{values, at}, part_elements * sizeof(float)}, nullptr},
                          system.clock().now());
    }
    seen.wait([&] { return seen.results_sent == elements / part_elements; });
    ctx.rounds->deliver({other, wire::round_key_share{plan.id, 0, 1, {}}, {}, nullptr},
                        system.clock().now());
    seen.wait([&] { return seen.prepared.has_value(); });
    auto held = first_view(plan);
    held.result = *seen.prepared;
    auto by = identity::from_seed(2)->sign(prepared_statement(plan.id, held));
    ctx.rounds->deliver({other, wire::round_prepared{plan.id, 0, held.result, by}, {}, nullptr},
                        system.clock().now());
    seen.wait([&] { return seen.over; });
    if (!seen.complete)
      state.SkipWithError("the round failed");
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * elements * sizeof(float)));
  for (const auto& worker : handles.workers)
    caf::anon_send_exit(worker, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(board, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(listener, caf::exit_reason::user_shutdown);
}

void sums(benchmark::State& state) {
  round_of_a_reducer(state, false);
}
BENCHMARK(sums)->Arg(0)->Arg(1)->Arg(2)->Arg(4)->UseRealTime()->Unit(benchmark::kMillisecond);

void slow_sums(benchmark::State& state) {
  round_of_a_reducer(state, true);
}
BENCHMARK(slow_sums)->Arg(1)->Arg(2)->Arg(4)->UseRealTime()->Unit(benchmark::kMillisecond);

} // namespace
