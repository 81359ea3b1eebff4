// Rounds that begin while the passes still compute what they average.

#include "tests/swarm/modes.hpp"

namespace waggle::testing {
namespace {

constexpr std::uint64_t last = 40;

class Buckets : public ::testing::Test, protected trainers {
protected:
  Buckets() : trainers(23) {}

  /// Three peers; each pass takes time, in which everything else goes on, and its gradient appears
  /// in four steps.
  void start(const char* strategy) {
    for (index i = 0; i < 3; ++i) {
      auto config = endless(i + 1);
      auto& training = config.training->training;
      training.max_epochs = last;
      training.strategy = strategy;
      training.min_peers = 3;
      toy_options toy{.parameters = 64, .micro_batch = 4, .data_seed = i + 1};
      toy.before_bucket = [this, i] {
        if (std::exchange(passes_, true)) // one in another would outlast a barrier's patience
          return;
        sim.run_for(milliseconds{4 + i});
        passes_ = false;
      };
      toy.spoils = [this, i, passes = 0]() mutable { return i == spoiled_ && ++passes == 8; };
      toy.taken_early = &taken_early_;
      config.training->make_learner = toys(toy);
      join(std::move(config));
    }
  }
  /// The mean of each epoch, as its bytes.
  std::map<std::uint64_t, digest> means() {
    std::map<std::uint64_t, digest> all;
    for (index i = 0; i < sim.size(); ++i)
      for (const auto& report : sim[i].rounds)
        if (report.outcome == round_outcome::complete && report.contributors.size() == 3)
          all.emplace(report.epoch.value(),
                      sha256(as_string_view(std::as_bytes(std::span{*report.values}))));
    return all;
  }

  std::optional<index> spoiled_;
  bool passes_ = false;         // time passes in a pass
  std::size_t taken_early_ = 0; // gradients, before all of them was there
};

TEST_F(Buckets, TheBytesOfEachUpdateAreThoseWithoutThem) {
  start("data-parallel:buckets=1");
  ASSERT_TRUE(sim.run_until([this] { return all_finished(); }, 120s)) << picture(sim);
  EXPECT_GT(taken_early_, last / 2);
  expect_rounds_kept_the_contract(sim);
  auto with = means();
  EXPECT_EQ(with.size(), last);
  struct plain_run : Buckets {
    void TestBody() override {}
    using Buckets::all_finished, Buckets::means, Buckets::start, Buckets::status_of,
      Buckets::taken_early_, Buckets::sim;
  } plain;
  plain.start("data-parallel");
  ASSERT_TRUE(plain.sim.run_until([&] { return plain.all_finished(); }, 120s))
    << picture(plain.sim);
  EXPECT_EQ(plain.taken_early_, 0U);
  auto without = plain.means();
  EXPECT_EQ(without.size(), last);
  for (const auto& [epoch, mean] : without)
    ASSERT_EQ(with[epoch], mean) << "epoch " << epoch;
  for (index i = 0; i < 3; ++i) {
    SCOPED_TRACE("peer " + std::to_string(i));
    EXPECT_EQ(status_of(i).parameters, plain.status_of(i).parameters);
    EXPECT_EQ(status_of(i).samples_used, plain.status_of(i).samples_used);
    EXPECT_EQ(status_of(i).samples_dropped, 0U);
    expect_samples_accounted(status_of(i));
  }
}

TEST_F(Buckets, APassThatIsNotFiniteIsDroppedAloneAndCounted) {
  spoiled_ = 1;
  start("data-parallel:buckets=1");
  ASSERT_TRUE(sim.run_until([this] { return all_finished(); }, 120s)) << picture(sim);
  expect_rounds_kept_the_contract(sim);
  for (index i = 0; i < 3; ++i) {
    SCOPED_TRACE("peer " + std::to_string(i));
    auto s = status_of(i);
    expect_samples_accounted(s);
    EXPECT_EQ(s.parameters, status_of(0).parameters);
    EXPECT_EQ(s.samples_dropped, i == 1 ? 4U : 0U);
  }
}

} // namespace
} // namespace waggle::testing
