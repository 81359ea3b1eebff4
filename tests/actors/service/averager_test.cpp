// waggle::averager with tensors, handles and its options, on real sockets.

#include "waggle/averager.hpp"

#include <cmath>
#include <deque>
#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/codec/half.hpp"
#include "waggle/node.hpp"

namespace waggle {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

node_options options(std::vector<std::string> peers = {}) {
  return {.run = "birds",
          .initial_peers = std::move(peers),
          .listen = {"127.0.0.1:0"},
          .log_level = "error"};
}

std::deque<node> start(std::size_t n) {
  std::deque<node> all;
  for (std::size_t i = 0; i < n; ++i) {
    auto one = node::start(options(i == 0 ? std::vector<std::string>{}
                                          : std::vector<std::string>{all.front().address()}));
    EXPECT_TRUE(one) << to_string(one.error());
    all.push_back(std::move(*one));
    EXPECT_TRUE(all.back().wait_until_ready(20s));
  }
  return all;
}

/// Tensors in turn of float32, float64 and float16, in which value i of peer `who` is known.
struct many {
  std::deque<std::vector<float>> f;
  std::deque<std::vector<double>> d;
  std::deque<std::vector<std::uint16_t>> h;
  std::vector<averaged_tensor> all;

  static double value(std::size_t who, std::size_t tensor, std::size_t i) {
    return std::sin(static_cast<double>(1 + who * 7919 + tensor * 31 + i));
  }
  many(std::size_t who, std::size_t tensors) {
    for (std::size_t t = 0; t < tensors; ++t) {
      averaged_tensor one{"t" + std::to_string(t), tensor_type::float32, {t + 1, 3}, nullptr};
      auto n = static_cast<std::size_t>(one.elements());
      auto fill = [&](auto& values, auto convert) {
        for (std::size_t i = 0; i < n; ++i)
          values.push_back(convert(value(who, t, i)));
        one.values = values.data();
      };
      if (t % 3 == 0)
        fill(f.emplace_back(), [](double x) { return static_cast<float>(x); });
      else if (t % 3 == 1)
        fill(d.emplace_back(), [](double x) { return x; });
      else
        fill(h.emplace_back(), [](double x) { return codecs::to_half(static_cast<float>(x)); });
      if (t % 3 != 0)
        one.type = t % 3 == 1 ? tensor_type::float64 : tensor_type::float16;
      all.push_back(one);
    }
  }
};

TEST(AveragerOfTensors, FiftyTensorsOfThreeTypesBecomeTheirMeanOnFourPeers) {
  auto peers = start(4);
  std::deque<many> tensors;
  std::vector<std::future<result<average_report>>> open;
  for (std::size_t who = 0; who < 4; ++who) {
    tensors.emplace_back(who, 50);
    auto made =
      averager::add(peers[who], {.name = "docs", .target_group_size = 4, .matchmaking_time = 10s},
                    tensors[who].all);
    open.push_back(std::async(std::launch::async, [who, with = *made]() mutable {
      return with.step(
        {.weight = 1.0 + static_cast<double>(who), .gather = "peer " + std::to_string(who)});
    }));
  }
  for (auto& each : open) {
    auto report = each.get();
    EXPECT_THAT(report->gathered, SizeIs(4));
    EXPECT_EQ(report->gathered.at(peers[2].id()), "peer 2");
  }
  for (std::size_t who = 1; who < 4; ++who) {
    EXPECT_EQ(tensors[who].f, tensors[0].f);
    EXPECT_EQ(tensors[who].d, tensors[0].d);
    EXPECT_EQ(tensors[who].h, tensors[0].h);
  }
  auto mean = [](std::size_t t, std::size_t i, auto rounded) {
    double sum = 0;
    for (std::size_t who = 0; who < 4; ++who)
      sum += (1.0 + static_cast<double>(who)) * rounded(many::value(who, t, i));
    return sum / 10;
  };
  for (std::size_t t = 0; t < 50; ++t) {
    const auto& one = tensors[0].all[t];
    for (std::size_t i = 0; i < one.elements(); ++i)
      if (t % 3 == 0)
        ASSERT_FLOAT_EQ(tensors[0].f[t / 3][i], static_cast<float>(mean(t, i, [](double x) {
                          return static_cast<double>(static_cast<float>(x));
                        })));
      else if (t % 3 == 1)
        ASSERT_NEAR(tensors[0].d[t / 3][i], mean(t, i, [](double x) { return x; }), 1e-15);
      else
        ASSERT_EQ(
          tensors[0].h[t / 3][i], codecs::to_half(static_cast<float>(mean(t, i, [](double x) {
            return static_cast<double>(codecs::from_half(codecs::to_half(static_cast<float>(x))));
          }))));
  }
}

TEST(AveragerOfTensors, AHandleTriggersShowsItsStageAndWritesOnce) {
  auto peers = start(2);
  std::vector<float> low(10, 1);
  std::vector<float> high(10, 3);
  const averager_options how{.name = "docs", .target_group_size = 2, .matchmaking_time = 10s};
  auto first = averager::add(peers[0], how, {{"w", tensor_type::float32, {10}, low.data()}});
  auto second = averager::add(peers[1], how, {{"w", tensor_type::float32, {10}, high.data()}});
  ASSERT_TRUE(first && second);
  auto step = first->begin({.timeout = 30s, .require_trigger = true});
  EXPECT_THAT(first->step().error().detail, HasSubstr("has a step that runs"));
  EXPECT_EQ(step->result(1ms).error().code, ec::not_ready);
  auto other = second->begin({.timeout = 30s});
  low[0] = std::nanf("");
  auto wrong = step->allow_allreduce();
  EXPECT_EQ(wrong.error().code, ec::non_finite);
  EXPECT_THAT(wrong.error().detail, HasSubstr("tensor 'w'"));
  low[0] = 1;
  EXPECT_TRUE(step->allow_allreduce());
  EXPECT_TRUE(step->allow_allreduce()) << "once is enough";
  ASSERT_TRUE(step->result());
  EXPECT_EQ(step->stage(), step_stage::done);
  ASSERT_TRUE(other->result());
  EXPECT_THAT(low, Each(2));
  EXPECT_EQ(low, high);
  low[0] = 7;
  ASSERT_TRUE(step->result());
  EXPECT_EQ(low[0], 7) << "the mean was written the first time";

  auto cancelled = first->begin({.timeout = 1h});
  cancelled->cancel();
  EXPECT_EQ(cancelled->result(20s).error().code, ec::cancelled);
  { auto dropped = first->begin({.timeout = 1h}); } // its end cancels it
  result<step_control> next = failure{ec::overloaded, {}};
  for (int i = 0; i < 1000 && !next; ++i) {
    next = first->begin({.timeout = 1h});
    if (auto ended = next->result(10ms); ended.error().code == ec::overloaded)
      next = failure{ec::overloaded, {}};
  }
  EXPECT_TRUE(next);
  EXPECT_TRUE(peers[0].leave());
  EXPECT_EQ(next->result(20s).error().code, ec::shutting_down);
  EXPECT_EQ(first->begin().error().code, ec::shutting_down);
}

TEST(AveragerOfTensors, StepsBeginAndEndInTheOrderOfTheCalls) {
  auto peers = start(1);
  std::vector<float> values(10, 1);
  auto docs =
    averager::add(peers[0], {.name = "docs"}, {{"w", tensor_type::float32, {10}, values.data()}});
  ASSERT_TRUE(docs);
  for (int i = 0; i < 1000; ++i) { // in each, the actor system may run them in another order
    auto first = docs->begin({.timeout = 1h});
    auto second = docs->begin({.timeout = 1h});
    first->cancel();
    ASSERT_EQ(second->result(20s).error().code, ec::overloaded) << i;
    ASSERT_EQ(first->result(20s).error().code, ec::cancelled) << i;
  }
}

TEST(AveragerOfTensors, OtherTensorsOfAnotherPeerAreNamed) {
  auto peers = start(2);
  std::vector<float> values(6);
  std::vector<double> doubles(6);
  const averager_options how{.name = "docs", .matchmaking_time = 500ms};
  auto first = averager::add(peers[0], how,
                             {{"w", tensor_type::float32, {6}, values.data()},
                              {"h", tensor_type::float32, {2, 3}, values.data()}});
  auto second = averager::add(peers[1], how,
                              {{"w", tensor_type::float32, {6}, values.data()},
                               {"h", tensor_type::float64, {3, 2}, doubles.data()}});
  ASSERT_TRUE(first && second);
  auto other =
    std::async(std::launch::async, [&] { return second->step({.timeout = 8s}).error(); });
  auto why = first->step({.timeout = 8s}).error();
  EXPECT_EQ(why.code, ec::schema_mismatch) << to_string(why);
  EXPECT_EQ(why.detail, "another peer averages other tensors under 'docs': tensor 1 is 'h' float32 "
                        "[2, 3] here, and 'h' float64 [3, 2] there");
  EXPECT_EQ(other.get().code, ec::schema_mismatch);
}

TEST(AveragerOfTensors, OptionsAreCheckedAndGroupBitsChange) {
  auto peers = start(1);
  std::vector<float> values(6);
  const std::vector<averaged_tensor> tensors{{"w", tensor_type::float32, {6}, values.data()}};
  auto why = [&](const averager_options& how) {
    auto made = averager::add(peers[0], how, tensors);
    return made ? "none" : made.error().detail;
  };
  EXPECT_THAT(why({.name = "docs", .target_group_size = 2, .min_group_size = 3}),
              HasSubstr("group"));
  EXPECT_THAT(why({.name = "docs", .group_bits = "012"}), HasSubstr("012"));
  EXPECT_THAT(why({.name = "docs", .alpha = std::nan("")}), HasSubstr("averager_options::alpha"));
  EXPECT_THAT(why({.name = "docs", .part_size_bytes = 10}),
              HasSubstr("averager_options::part_size_bytes"));
  EXPECT_THAT(why({.name = "docs", .codec = "gzip"}), HasSubstr("averager_options::codec"));
  EXPECT_THAT(why({.name = "docs", .sender_timeout = -1s}),
              HasSubstr("averager_options::sender_timeout"));
  auto made = averager::add(peers[0], {.name = "docs", .group_bits = "01"}, tensors);
  EXPECT_EQ(*made->group_bits(), "01");
  EXPECT_TRUE(made->set_group_bits("110"));
  EXPECT_EQ(*made->group_bits(), "110");
  EXPECT_EQ(made->set_group_bits("bits").error().code, ec::bad_config);
  EXPECT_EQ(*made->group_bits(), "110");
  auto of_name = averager::of(peers[0], "docs");
  EXPECT_THAT(of_name->step().error().detail, HasSubstr("has no tensors"));
}

TEST(AveragerOfTensors, StateIsLoadedFromThePeerWithTheHighestPriority) {
  auto peers = start(3);
  std::vector<double> values{1, 2};
  const std::vector<averaged_tensor> tensors{{"w", tensor_type::float64, {2}, values.data()}};
  auto low = averager::add(peers[0], {.name = "docs", .allow_state_sharing = true}, tensors);
  averager_options how{.name = "docs", .allow_state_sharing = true, .state_sharing_priority = 0.5};
  how.get_current_state = [] { return averager_state{"epoch 7", {}}; };
  auto high = averager::add(peers[1], how, tensors);
  auto newcomer = averager::add(peers[2], {.name = "docs"}, tensors);
  ASSERT_TRUE(low && high && newcomer);
  result<averager_state> got = ec::no_donor;
  do // records of both are on their way
    ASSERT_TRUE(got = newcomer->load_state_from_peers(60s)) << to_string(got.error());
  while (got->metadata.empty());
  EXPECT_EQ(got->metadata, "epoch 7");
  EXPECT_EQ(newcomer->load_state_from_peers(60s, 3).error().code, ec::oversize);
  ASSERT_TRUE(high->end());
  ASSERT_TRUE(got = newcomer->load_state_from_peers(60s)) << to_string(got.error());
  ASSERT_THAT(got->tensors, SizeIs(1));
  EXPECT_EQ(got->tensors[0].name, "w");
  EXPECT_EQ(static_cast<const double*>(got->tensors[0].values)[1], 2);
  ASSERT_TRUE(low->allow_state_sharing(false));
  auto refused = newcomer->load_state_from_peers(10min);
  EXPECT_EQ(refused.error().code, ec::not_owner);
  EXPECT_THAT(refused.error().detail, HasSubstr("share it with nobody now: 2"));
  EXPECT_EQ(low->set_state_sharing_priority(std::nan("")).error().code, ec::bad_config);
  EXPECT_THAT(averager::of(peers[2], "docs")->allow_state_sharing(true).error().detail,
              HasSubstr("has no state to share"));
  how.get_current_state = []() -> averager_state { throw std::runtime_error{"broken"}; };
  ASSERT_TRUE(averager::add(peers[1], how, tensors));
  do // its record is on its way
    got = newcomer->load_state_from_peers(1s);
  while (!got && got.error().code == ec::not_owner);
  EXPECT_EQ(got.error().code, ec::no_donor);
}

} // namespace
} // namespace waggle
