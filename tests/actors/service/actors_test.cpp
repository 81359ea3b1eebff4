// The parts of a peer as actors (waggle/actors.hpp), on real sockets.

#include "waggle/actors.hpp"

#include <caf/all.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "waggle/averager.hpp"
#include "waggle/node.hpp"

namespace waggle {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

struct ServiceActors : ::testing::Test {
  caf::actor_system_config config;
  caf::actor_system system{config};
  node first = start({});
  node second = start({first.address()});
  caf::scoped_actor self{system};

  node start(std::vector<std::string> peers) {
    node_options o{.run = "bees", .initial_peers = std::move(peers), .listen = {"127.0.0.1:0"}};
    o.log_level = "error";
    o.around.system = &system;
    auto made = node::start(o);
    EXPECT_TRUE(made && made->wait_until_ready(20s));
    return std::move(*made);
  }
  template <class Answer, class Handle, class Question>
  result<Answer> ask(const Handle& who, Question question) {
    result<Answer> out = failure{ec::internal, {}};
    self->request(who, 90s, std::move(question))
      .receive([&](Answer& answer) { out = std::move(answer); },
               [&](const caf::error& why) { out = why_failed(why); });
    return out;
  }
};

TEST_F(ServiceActors, StoreAndFindValuesAndStates) {
  auto table = dht_of(first);
  auto other = dht_of(second);
  ASSERT_TRUE(table && other);
  EXPECT_TRUE(ask<done>(*table, put_value{"members", "ann", "here", 1min}));
  auto found = ask<values_found>(*other, get_values{"members"});
  ASSERT_EQ(found->by_subkey.size(), 1U);
  EXPECT_EQ(found->by_subkey.at("ann").value, "here");
  EXPECT_EQ(ask<done>(*table, put_value{"k", "", std::string(100'000, 'x')}).error().code,
            ec::oversize);
  EXPECT_EQ(ask<values_found>(*table, get_values{"k", -1s}).error().code, ec::bad_config);

  auto donor = state_of(first);
  auto reader = state_of(second);
  ASSERT_TRUE(donor && reader);
  EXPECT_TRUE(ask<done>(*donor, donate_state{"weights", 7, {std::byte{1}, std::byte{2}}}));
  auto got = ask<fetched_version>(*reader, fetch_version{"weights", 7});
  EXPECT_EQ(got->version, 7U);
  EXPECT_EQ(got->bytes.size(), 2U);
  EXPECT_EQ(got->donor, first.id());
  EXPECT_EQ(ask<done>(*donor, donate_state{"weights", 8, {}}).error().code, ec::wrong_shape);
  EXPECT_EQ(ask<fetched_version>(*reader, fetch_version{"", 7}).error().code, ec::bad_config);
}

TEST_F(ServiceActors, AverageTensorsWhereTheyAre) {
  std::vector<float> low(10, 1);
  std::vector<float> high(10, 3);
  const averager_options how{.name = "docs", .target_group_size = 2, .matchmaking_time = 10s};
  auto one = averager::add(first, how, {{"w", tensor_type::float32, {10}, low.data()}});
  auto two = averager::add(second, how, {{"w", tensor_type::float32, {10}, high.data()}});
  ASSERT_TRUE(one && two);
  auto a = averager_of(first, "docs");
  auto b = averager_of(second, "docs");
  ASSERT_TRUE(a && b);
  auto waiting = self->request(*a, 90s, run_step{});
  auto ended = ask<step_ended>(*b, run_step{});
  EXPECT_TRUE(ended->values.empty());
  waiting.receive([](step_ended&) {},
                  [](const caf::error& why) { FAIL() << to_string(why_failed(why)); });
  EXPECT_THAT(low, Each(2));
  EXPECT_EQ(low, high);
}

TEST_F(ServiceActors, AverageValuesAfterATriggerOrNot) {
  const averager_options how{.name = "docs", .target_group_size = 2, .matchmaking_time = 10s};
  EXPECT_EQ(averager_of(first, "docs").error().code, ec::bad_config);
  ASSERT_TRUE(averager::add(first, how) && averager::add(second, how));
  auto a = averager_of(first, "docs");
  auto b = averager_of(second, "docs");
  ASSERT_TRUE(a && b);
  EXPECT_THAT(ask<step_ended>(*a, run_step{}).error().detail, HasSubstr("has no tensors"));
  EXPECT_EQ(ask<done>(*a, allow_step{}).error().code, ec::not_looking);
  auto waiting = self->request(
    *a, 90s, run_step{{.gather = "ann", .require_trigger = true}, std::vector<float>(10, 1)});
  EXPECT_EQ(ask<step_ended>(*a, run_step{{}, {1}}).error().code, ec::overloaded);
  auto other = self->request(*b, 90s, run_step{{.weight = 3}, std::vector<float>(10, 3)});
  EXPECT_TRUE(ask<done>(*a, allow_step{}));
  EXPECT_TRUE(ask<done>(*a, allow_step{})) << "once is enough";
  for (auto* each : {&waiting, &other})
    each->receive(
      [&](step_ended& ended) {
        EXPECT_THAT(ended.values, Each(2.5F));
        EXPECT_EQ(ended.report.gathered.at(first.id()), "ann");
        EXPECT_EQ(ended.report.contributors.size(), 2U);
      },
      [](const caf::error& why) { FAIL() << to_string(why_failed(why)); });
  auto stopped = self->request(*a, 90s, run_step{{.timeout = 1h}, {1}});
  self->send(*a, stop_step{});
  stopped.receive([](step_ended&) { FAIL(); },
                  [](const caf::error& why) { EXPECT_EQ(why_failed(why).code, ec::cancelled); });
}

TEST_F(ServiceActors, EndWithTheirPeer) {
  ASSERT_TRUE(averager::add(first, {.name = "docs"}));
  auto table = dht_of(first);
  auto states = state_of(first);
  auto averager = averager_of(first, "docs");
  ASSERT_TRUE(table && states && averager);
  self->monitor(*table);
  self->monitor(*states);
  self->monitor(*averager);
  auto step = self->request(*averager, 90s, run_step{{.timeout = 1h}, {1}});
  ASSERT_TRUE(first.leave(30s));
  int down = 0;
  self->receive_for(down, 3)([](const caf::down_msg&) {});
  step.receive([](step_ended&) { FAIL(); },
               [](const caf::error& why) { EXPECT_EQ(why_failed(why).code, ec::shutting_down); });
  EXPECT_EQ(ask<values_found>(*table, get_values{"k"}).error().code, ec::shutting_down);
  EXPECT_EQ(dht_of(first).error().code, ec::shutting_down);
  EXPECT_EQ(averager_of(first, "docs").error().code, ec::shutting_down);
  EXPECT_EQ(state_of(first).error().code, ec::shutting_down);
}

} // namespace
} // namespace waggle
