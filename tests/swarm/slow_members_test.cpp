// Members that keep the rounds of a group waiting: how long the others wait for them, and for whom.

#include "tests/support/honest_port.hpp"
#include "tests/swarm/in_step.hpp"

namespace waggle::testing {
namespace {

/// Sends its parts, and its word that it holds the result, so long after its round began. Not in
/// the first round after one that failed: nobody waits for a newcomer that has not contributed.
class late_port final : public honest_port {
public:
  struct delays {
    milliseconds parts{0};
    milliseconds confirmation{0};
  };

  /// @param member whether the last round was completed.
  late_port(std::shared_ptr<round_port> port, caf::actor_system& system, delays late,
            std::shared_ptr<bool> member)
    : honest_port(std::move(port)), system_(system), late_(*member ? late : delays{}),
      member_(std::move(member)) {}

  void finished(round_finished how) override {
    *member_ = how.report.outcome != round_outcome::failed;
    port_->finished(std::move(how));
  }

  void send(const peer_record& to, wire::event what, payload body) override {
    auto now = system_.clock().now();
    if (!began_)
      began_ = now;
    bool confirms = std::holds_alternative<wire::round_prepared>(what);
    auto due = *began_ + (confirms ? late_.confirmation : late_.parts);
    if (due <= now)
      return port_->send(to, std::move(what), std::move(body));
    system_.spawn([port = port_, to, what = std::move(what), body = std::move(body),
                   left = due - now](caf::event_based_actor* self) -> caf::behavior {
      self->delayed_send(self, left, caf::ok_atom::value);
      return {[=](caf::ok_atom) {
        port->send(to, what, body);
        self->quit();
      }};
    });
  }

private:
  caf::actor_system& system_;
  const delays late_;
  const std::shared_ptr<bool> member_;
  std::optional<steady_time> began_;
};

/// Just within a stall timeout of 1 s.
constexpr late_port::delays just_in_time{850ms, 2'400ms};

struct SlowMembers : InStep {
  SlowMembers() { sim.keep_log_lines(); }

  node_config with_a_second(std::uint64_t data_seed, std::uint64_t target = 32) {
    auto config = endless(data_seed);
    config.averaging->averaging.round.stall_timeout = 1s;
    config.training->training.target_batch_size = target;
    config.progress.ledger.target_batch_size = target;
    return config;
  }
  /// Peers that start from now on are late.
  void start_late(late_port::delays late) {
    sim.decorate_rounds([this, late, member = std::make_shared<bool>()](auto port) {
      return std::make_shared<late_port>(std::move(port), sim.system(), late, member);
    });
  }
  void begin_group(std::size_t size, std::uint64_t target = 32) {
    for (std::size_t i = 0; i < size; ++i)
      join(with_a_second(i + 1, target));
    ASSERT_TRUE(sim.run_until([&] { return together(); }, 60s)) << picture(sim);
    sim.run_for(3s);
  }
  double epochs_a_second(std::chrono::nanoseconds time, index who = 0) {
    auto before = status_of(who).epoch.value();
    sim.run_for(time);
    return static_cast<double>(status_of(who).epoch.value() - before) / seconds_of(time);
  }
  /// How often `who` logged that it keeps a slow member out.
  std::size_t exclusions_at(index who) { return lines_with(who, "kept most rounds waiting"); }
};

TEST_F(SlowMembers, WhoIsAlwaysJustInTimeCostsTheOthersLittle) {
  begin_group(3);
  auto quiet = epochs_a_second(20s);
  start_late(just_in_time);
  auto odd = add(with_a_second(9), {0, 1, 2});
  ASSERT_TRUE(sim.run_until([&] { return status_of(odd).group_size == 4; }, 20s)) << picture(sim);
  auto first = epochs_a_second(20s);
  auto then = epochs_a_second(120s);
  RecordProperty("quiet", std::to_string(quiet));
  RecordProperty("first_20_s", std::to_string(first));
  RecordProperty("next_120_s", std::to_string(then));
  EXPECT_GE(then, 0.75 * quiet) << "of " << quiet << ", first " << first << picture(sim);
  EXPECT_GE(exclusions_at(0), 1U) << "it is tried again";
  EXPECT_LE(exclusions_at(0), 3U) << "for a time that doubles";
  EXPECT_TRUE(together({0, 1, 2}, 3) || together()) << picture(sim);
  EXPECT_GE(lines_with(odd, "goes on without this peer for a while because it kept"), 1U);
  expect_rounds_kept_the_contract(sim);
}

TEST_F(SlowMembers, ALeaderIsLeftBehindLikeAnyOther) {
  start_late(just_in_time);
  auto odd = add(with_a_second(9), {});
  sim.decorate_rounds({});
  for (std::uint64_t i = 1; i <= 3; ++i)
    add(with_a_second(i), {odd});
  ASSERT_TRUE(sim.run_until([&] { return together(); }, 60s)) << picture(sim);
  sim.run_for(40s);
  EXPECT_GE(epochs_a_second(60s, 1), 1.5) << picture(sim);
  expect_rounds_kept_the_contract(sim);
}

TEST_F(SlowMembers, OneWhoseSamplesAreWorthTheWaitStays) {
  begin_group(3, 1'024); // an epoch takes some 8 s, and 6 with the fourth
  start_late({600ms, 1'000ms});
  auto odd = add(with_a_second(9, 1'024), {0, 1, 2});
  ASSERT_TRUE(sim.run_until([&] { return status_of(odd).group_size == 4; }, 60s)) << picture(sim);
  sim.run_for(120s);
  EXPECT_EQ(status_of(odd).group_size, 4U) << picture(sim);
  EXPECT_EQ(exclusions_at(0), 0U);
  EXPECT_EQ(status_of(odd).state_downloads, 1U);
}

TEST_F(SlowMembers, NobodyIsPutOutBecauseAllAreSlow) {
  for (std::uint64_t i = 0; i < 4; ++i) {
    start_late({600ms, 1'200ms});
    join(with_a_second(i + 1));
  }
  ASSERT_TRUE(sim.run_until([&] { return together(); }, 60s)) << picture(sim);
  sim.run_for(60s);
  EXPECT_TRUE(together()) << picture(sim);
  for (index i = 0; i < 4; ++i)
    EXPECT_EQ(exclusions_at(i), 0U);
}

} // namespace
} // namespace waggle::testing
