// Loops whose samples are dealt, in one actor system. Their parameters are the truth: how often
// each sample has entered an update.

#include "waggle/shards.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <filesystem>
#include <future>

#include <caf/all.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>

#include "tests/support/scratch_folder.hpp"
#include "waggle/loop.hpp"

namespace waggle {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr std::size_t samples = 203;
constexpr std::uint64_t passes = 2;
using batch = std::vector<std::uint64_t>;

struct counted {
  std::vector<float> unused = std::vector<float>(samples);
  std::vector<float> seen = std::vector<float>(samples);

  [[nodiscard]] static std::vector<float> gradient(const batch& of) {
    std::vector<float> g(samples);
    for (auto i : of)
      g[i] += 1 / static_cast<float>(of.size());
    return g;
  }
  void update(std::span<const float> mean) {
    float once = 1;
    for (auto g : mean)
      once = g > 0 ? std::min(once, g) : once;
    for (std::size_t i = 0; i < samples; ++i)
      seen[i] += std::round(mean[i] / once);
  }
  loop_options options() {
    loop_options o{.parameters = {{"w", {samples}, unused, {{"seen", seen, true}}}},
                   .optimizer = "counts"};
    o.update = [this](std::span<const float> g, double) { update(g); };
    return o;
  }
};

class Shards : public ::testing::Test {
protected:
  result<swarm> peer(const std::string& name, std::vector<std::string> others = {},
                     std::string begin_with = "1") {
    swarm_options o;
    o.more["min-peers"] = std::move(begin_with);
    o.run = "counts";
    o.initial_peers = std::move(others);
    o.listen = "127.0.0.1:0";
    o.data_dir = folder_ / name;
    o.target_batch_size = 16;
    o.around = {&system_, registry_, [](log_level, std::string_view) {}};
    return join(o);
  }

  /// Loads two batches ahead of the steps, of which it makes at most `steps`.
  static int train(loop& peer, shards& dealt, int steps = 1'000'000) {
    int made = 0;
    while (made < steps && dealt.begin()) {
      std::deque<batch> ahead;
      auto load = [&] {
        if (auto next = dealt.next(5); !next.empty())
          ahead.push_back(std::move(next));
      };
      load();
      load();
      for (; made < steps && !ahead.empty(); ++made) {
        auto now = std::move(ahead.front());
        ahead.pop_front();
        load();
        if (peer.step(counted::gradient(now), now.size(), 0) == step_outcome::finished)
          return made;
      }
    }
    return made;
  }
  /// `shown`: the passes that have ended since this peer started.
  static void expect_each_once(const swarm& in, std::uint64_t shown) {
    auto all = in.status().passes;
    ASSERT_EQ(all.size(), shown + 1);
    for (const auto& pass : all) {
      EXPECT_EQ(pass.once, pass.pass <= passes ? samples : 0);
      EXPECT_EQ(pass.twice, 0U);
    }
    EXPECT_EQ(all.back().pass, passes + 1);
    EXPECT_EQ(all.back().never, samples);
  }

  caf::actor_system_config config_;
  caf::actor_system system_{config_};
  std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  testing::scratch_folder scratch_;
  const std::filesystem::path& folder_ = scratch_.path();
};

TEST_F(Shards, EachSampleEntersOneUpdateAPassThoughALoopLeaves) {
  auto first = peer("first", {}, "2");
  auto dealt = shards::of(*first, samples, passes);
  counted own;
  auto training = loop::start(*first, own.options());
  auto other = std::async(std::launch::async, [&, address = first->address()] {
    auto in = peer("second", {address}, "2");
    auto shares = shards::of(*in, samples, passes);
    counted seen;
    auto leaves = loop::start(*in, seen.options());
    return train(*leaves, *shares, 9);
  });
  auto made = train(*training, *dealt);
  EXPECT_TRUE(first->finished());
  EXPECT_GT(made, 0);
  EXPECT_EQ(dealt->passes_complete(), passes);
  EXPECT_THAT(own.seen, Each(static_cast<float>(passes)));
  expect_each_once(*first, passes);
  { auto leaves = std::move(*training); }
  auto by_other = other.get();
  EXPECT_GT(by_other, 0);
  EXPECT_LE(by_other, 9);
}

TEST_F(Shards, ALoopThatStopsGoesOnWithTheSamplesThatNoUpdateHas) {
  counted own;
  for (int steps : {3, 7, 20, 41, 1'000'000}) { // of the 82 that there are at least
    auto in = peer("alone");
    auto dealt = shards::of(*in, samples, passes);
    own = {}; // all comes from the checkpoint
    auto training = loop::start(*in, own.options());
    train(*training, *dealt, steps);
    if (in->finished()) {
      EXPECT_THAT(own.seen, Each(static_cast<float>(passes)));
      expect_each_once(*in, 1);
    }
  }
  EXPECT_THAT(own.seen, Each(static_cast<float>(passes)));
}

TEST_F(Shards, MistakesAreRefusedWithASentence) {
  auto in = peer("wrong");
  EXPECT_THAT(shards::of(*in, 0).error().detail, HasSubstr("1 to 4294967296 samples"));
  EXPECT_THAT(shards::of(*in, 5, 0).error().detail, HasSubstr("passes is 0"));
  auto dealt = shards::of(*in, samples, passes);
  EXPECT_THAT(shards::of(*in, samples).error().detail, HasSubstr("dealt already"));
  EXPECT_THROW(dealt->begin(), std::logic_error) << "before there is a loop";
  counted own;
  auto training = loop::start(*in, own.options());
  ASSERT_TRUE(dealt->begin());
  auto first = dealt->next(5);
  EXPECT_EQ(first.size(), 5U);
  EXPECT_THROW(training->step(counted::gradient(first), 6, 0), std::invalid_argument);
  EXPECT_THROW(training->keep("a place"), std::invalid_argument);
  std::vector<float> broken(samples, std::nanf(""));
  EXPECT_EQ(training->step(broken, 5, 0), step_outcome::dropped);
  EXPECT_NE(dealt->next(5), first) << "they come after the others";
  EXPECT_THROW(
    {
      while (dealt->begin())
        (void)dealt->next(4); // never in a step
    },
    std::logic_error);
  auto late = peer("late");
  auto started = loop::start(*late, own.options());
  ASSERT_TRUE(started);
  EXPECT_THAT(shards::of(*late, samples).error().detail, HasSubstr("before the optimizer"));
}

} // namespace
} // namespace waggle
