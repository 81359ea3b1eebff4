// A thousand failed rounds must not leak memory: hivemind issue #264 describes peers that ran out
// of memory, the faster the more rounds failed.

#include "tests/actors/averager/averaging_world.hpp"

namespace waggle::testing {
namespace {

class FailedRounds : public averaging_world {
protected:
  static constexpr std::size_t peer_count = 3;

  FailedRounds() {
    group_size = peer_count;
    averaging_config config;
    config.round.stall_timeout = 400ms;
    config.round.takeover_timeout = 200ms;
    config.round.deadline = 2s;
    for (std::size_t i = 0; i < peer_count; ++i)
      add(config);
    lets_through = [this](std::size_t, const notify_peer&) { return ++said <= heard_max; };
  }
  ~FailedRounds() override { end_actors(); }

  /// Only the first `n` messages arrive. Returns how many of the members failed.
  std::size_t run_round(std::size_t n) {
    said = 0;
    heard_max = n;
    for (std::size_t i = 0; i < peer_count; ++i)
      (void)find(i, 64);
    std::vector<pending<group_round>> reports;
    for (std::size_t i = 0; i < peer_count; ++i) {
      average_in_group what{.values = vector(std::vector<float>(64, static_cast<float>(i))),
                            .weight = 1,
                            .deadline = 3s};
      given.push_back(what.values);
      reports.push_back(ask_later<group_round>(peers[i]->group, std::move(what)));
    }
    pass(3s);
    std::size_t failed = 0;
    for (const auto& report : reports)
      failed += report.get() && report.get()->report.outcome == round_outcome::failed ? 1 : 0;
    return failed;
  }

  struct census {
    std::size_t vectors = 0; // in use, of the pools
    std::size_t rounds = 0;  // in the registries
    std::size_t callers = 0; // vectors of callers that are still held
  };
  census count() {
    census out;
    for (const auto& p : peers) {
      out.vectors += p->ctx.vectors->lent();
      out.rounds += p->ctx.rounds->size();
    }
    std::erase_if(given, [](const auto& v) { return v.expired(); });
    out.callers = given.size();
    return out;
  }

  std::size_t said = 0;
  std::size_t heard_max = 0;
  std::vector<std::weak_ptr<const float_vector>> given;
};

TEST_F(FailedRounds, AThousandOfThemLeaveNothingBehind) {
  std::size_t most_rounds = 0;
  for (std::size_t i = 0; i < 1'000; ++i) {
    // Interrupted at every point, from the first message to the last results.
    ASSERT_EQ(run_round(i % 100), peer_count) << "round " << i;
    auto now = count();
    ASSERT_EQ(now.vectors, 0U) << "after round " << i;
    ASSERT_LE(now.callers, peer_count) << "after round " << i << ": at most the last one's";
    if (i < 100)
      most_rounds = std::max(most_rounds, now.rounds);
    else
      ASSERT_LE(now.rounds, most_rounds) << "after round " << i;
  }
  pass(round_registry::limits{}.remembered_for + 2s);
  EXPECT_EQ(count().rounds, 0U);
}

} // namespace
} // namespace waggle::testing
