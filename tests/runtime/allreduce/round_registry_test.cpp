#include "runtime/allreduce/round_registry.hpp"

#include <array>
#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include "runtime/crypto/digest.hpp"
#include "tests/runtime/averaging/plans.hpp"
#include "tests/support/fake_signatures.hpp"

namespace waggle {
namespace {

inbound_event message_of(std::uint8_t round) {
  wire::round_prepared what;
  what.round.bytes[0] = std::byte{round};
  return {{}, what, {}, nullptr};
}

TEST(RoundRegistry, KeepsNoMoreForUnknownRoundsThanItsLimit) {
  round_registry::limits limits{.strangers_events_max = 2};
  round_registry rounds{limits, [](const peer_record&, wire::event) {}};
  EXPECT_TRUE(rounds.deliver(message_of(1), {}));
  EXPECT_TRUE(rounds.deliver(message_of(2), {}));
  EXPECT_FALSE(rounds.deliver(message_of(3), {})) << "the caller counts what was dropped";
  EXPECT_EQ(rounds.forget_old(steady_time{} + limits.parked_for), 2U);
  EXPECT_TRUE(rounds.deliver(message_of(3), {})) << "there is room again";
}

/// Counts the bytes that are returned to a peer's window.
class counting_link : public net::link {
public:
  [[nodiscard]] const peer_record& remote() const override { return nobody_; }
  [[nodiscard]] bool outbound() const override { return false; }
  void start(std::shared_ptr<net::link_listener>) override {}
  bool send(net::frame) override { return false; }
  void grant(std::size_t bytes) override { granted += bytes; }
  [[nodiscard]] bool idle() const override { return true; }
  void close(failure) override {}

  std::size_t granted = 0;

private:
  peer_record nobody_;
};

inbound_event message_from(std::uint8_t peer, std::uint8_t round, std::size_t bytes = 0,
                           std::shared_ptr<net::link> via = nullptr) {
  auto event = message_of(round);
  event.from.id.bytes[0] = std::byte{peer};
  event.via = std::move(via);
  event.body = copy_to_payload(std::vector<std::byte>(bytes));
  return event;
}

TEST(RoundRegistry, TheStrangerThatSendsMostMakesRoom) {
  round_registry::limits limits{.stranger_events_max = 8, .strangers_events_max = 10};
  round_registry rounds{limits, [](const peer_record&, wire::event) {}};
  std::size_t taken = 0;
  for (std::uint8_t round = 0; round < 100; ++round)
    taken += rounds.deliver(message_from(1, round), {}) ? 1 : 0;
  EXPECT_EQ(taken, 8U) << "a stranger's own limit";
  EXPECT_EQ(rounds.size(), 8U);
  for (std::uint8_t i = 0; i < 4; ++i)
    EXPECT_TRUE(rounds.deliver(message_from(2, 200), {})) << int{i};
  EXPECT_EQ(rounds.size(), 1U) << "what the flood had parked is gone";
  EXPECT_EQ(rounds.forget_old({}), 8U) << "and reported";
}

TEST(RoundRegistry, BodiesOfStrangersHaveATotal) {
  auto link = std::make_shared<counting_link>();
  round_registry::limits limits{.strangers_bytes_max = 1'000};
  round_registry rounds{limits, [](const peer_record&, wire::event) {}};
  EXPECT_TRUE(rounds.deliver(message_from(1, 1, 600, link), {}));
  EXPECT_FALSE(rounds.deliver(message_from(1, 2, 600, link), {}));
  EXPECT_EQ(link->granted, 600U) << "what is dropped is returned to the window";
  EXPECT_TRUE(rounds.deliver(message_from(2, 3, 400), {}));
  EXPECT_TRUE(rounds.deliver(message_from(3, 4, 500), {})) << "the heaviest makes room";
  EXPECT_EQ(link->granted, 1'200U);
}

TEST(RoundRegistry, MessagesOfStrangersCountWithoutBodies) {
  round_registry::limits limits{.strangers_bytes_max = 1'000};
  round_registry rounds{limits, [](const peer_record&, wire::event) {}};
  auto long_message = message_from(1, 1);
  long_message.header_bytes = 600;
  EXPECT_TRUE(rounds.deliver(long_message, {}));
  EXPECT_FALSE(rounds.deliver(long_message, {}));
}

TEST(RoundRegistry, ExpectsAsMuchAsARoundSends) {
  round_registry rounds{{}, [](const peer_record&, wire::event) {}};
  auto plan = plan_for(2);
  plan.elements = 1'000;
  auto member = plan.members[1].peer.id;
  auto stranger = message_from(9, 1).from.id;
  EXPECT_FALSE(rounds.expects(member, plan.id, 1));
  rounds.expect(plan);
  EXPECT_TRUE(rounds.expects(member, plan.id, 8'000));
  EXPECT_FALSE(rounds.expects(member, plan.id, 8'001));
  EXPECT_FALSE(rounds.expects(stranger, plan.id, 1));
  auto other = plan.id;
  other.bytes[0] ^= std::byte{1};
  EXPECT_FALSE(rounds.expects(member, other, 1));
}

TEST(RoundRegistry, WhatAMemberSaysOfTheGroupBetweenRoundsIsHeardAtOnce) {
  round_registry rounds{{}, [](const peer_record&, wire::event) {}};
  auto plan = plan_for(2);
  std::size_t heard = 0;
  rounds.expect(plan, [&heard](const peer_record&, const wire::event&) { ++heard; });
  auto member = plan.members[1].peer;
  EXPECT_TRUE(rounds.deliver({member, wire::bandwidth_report{plan.id, 0}, {}, nullptr}, {}));
  EXPECT_EQ(heard, 1U);
  EXPECT_EQ(rounds.size(), 0U) << "nothing is kept for the round, which would expire with it";
  auto stranger = message_from(9, 1).from;
  EXPECT_TRUE(rounds.deliver({stranger, wire::bandwidth_report{plan.id, 0}, {}, nullptr}, {}));
  EXPECT_EQ(heard, 1U);
}

TEST(RoundRegistry, ExpectsNothingOfARoundThatDoesNotBegin) {
  round_registry rounds{{}, [](const peer_record&, wire::event) {}};
  auto plan = plan_for(2);
  rounds.expect(plan);
  EXPECT_TRUE(rounds.expects(plan.members[1].peer.id, plan.id, 1));
  rounds.finish(plan.id, {{}, plan.id, {}}, {});
  EXPECT_FALSE(rounds.expects(plan.members[1].peer.id, plan.id, 1));
}

/// A message of a member of round 7, which is expected from now on.
inbound_event expected_in(round_registry& rounds) {
  auto plan = plan_for(2);
  plan.elements = 1'000;
  plan.id.bytes = {};
  plan.id.bytes[0] = std::byte{7};
  rounds.expect(plan);
  auto early = message_from(0, 7, 900);
  early.from = plan.members[1].peer;
  return early;
}

TEST(RoundRegistry, AnExpectedRoundHasAPlaceOfItsOwn) {
  round_registry::limits limits{.strangers_bytes_max = 1'000};
  round_registry rounds{limits, [](const peer_record&, wire::event) {}};
  auto early = expected_in(rounds);
  for (int i = 0; i < 8; ++i)
    EXPECT_TRUE(rounds.deliver(early, {})) << "a large model's first round is sent at once";
  EXPECT_TRUE(rounds.deliver(early, {})) << "as a stranger's";
  EXPECT_FALSE(rounds.deliver(early, {})) << "more than a round has";
  auto other = message_from(0, 8, 900);
  other.from = early.from;
  EXPECT_FALSE(rounds.deliver(other, {})) << "of another round";
  EXPECT_FALSE(rounds.has_averaged_with(early.from.id));
}

TEST(RoundRegistry, WhatIsExpectedOfAPeerIsNotDroppedForStrangers) {
  round_registry::limits limits{.strangers_events_max = 4};
  round_registry rounds{limits, [](const peer_record&, wire::event) {}};
  auto early = expected_in(rounds);
  for (int i = 0; i < 8; ++i)
    EXPECT_TRUE(rounds.deliver(early, {}));
  for (std::uint8_t stranger = 50; stranger < 54; ++stranger)
    EXPECT_TRUE(rounds.deliver(message_from(stranger, stranger), {}));
  EXPECT_FALSE(rounds.deliver(message_from(60, 60), {})) << "nobody has more than it would";
  EXPECT_EQ(rounds.forget_old({}), 0U) << "nothing was dropped for it";
}

class link_from final : public counting_link {
public:
  explicit link_from(std::string host) : host_(std::move(host)) {}
  [[nodiscard]] std::string host() const override { return host_; }

private:
  std::string host_;
};

TEST(RoundRegistry, ManyIdentitiesOfAHostDoNotPushOutANewcomerOfAnother) {
  round_registry::limits limits{.strangers_events_max = 20};
  round_registry rounds{limits, [](const peer_record&, wire::event) {}};
  auto flood = std::make_shared<link_from>("192.0.2.1");
  auto home = std::make_shared<link_from>("192.0.2.2");
  for (int i = 0; i < 6; ++i)
    EXPECT_TRUE(rounds.deliver(message_from(1, 7, 0, home), {}));
  for (std::uint8_t i = 0; i < 14; ++i)
    EXPECT_TRUE(rounds.deliver(message_from(100 + i, 8, 0, flood), {}));
  EXPECT_FALSE(rounds.deliver(message_from(150, 8, 0, flood), {})) << "its own host has most";
  EXPECT_TRUE(rounds.deliver(message_from(1, 7, 0, home), {}));
  EXPECT_EQ(rounds.forget_old({}), 1U) << "one of the flood made room";
}

TEST(RoundRegistry, KeepsATakeoverForARoundThatMayBegin) {
  std::vector<wire::event> said;
  round_registry rounds{
    {}, [&](const peer_record&, wire::event what) { said.push_back(std::move(what)); }};
  wire::round_takeover what;
  what.round.bytes[0] = std::byte{9};
  EXPECT_TRUE(rounds.deliver({{}, what, {}, nullptr}, {}));
  EXPECT_TRUE(said.empty()) << "a peer that reports the round as unknown is left out";
  // The round will not begin here.
  rounds.finish(what.round, {{}, what.round, {}}, {});
  ASSERT_EQ(said.size(), 1U);
  EXPECT_FALSE(std::get<wire::round_promise>(said[0]).knows_view) << "we promise nothing";
}

TEST(RoundRegistry, ReleasesWhatCameForARoundThatWillNotBegin) {
  round_registry::limits limits{.parked_events_max = 1};
  round_registry rounds{limits, [](const peer_record&, wire::event) {}};
  auto link = std::make_shared<counting_link>();
  std::array<std::byte, 40> bytes{};
  wire::part part;
  part.round.bytes[0] = std::byte{3};
  EXPECT_TRUE(rounds.deliver({{}, part, copy_to_payload(bytes), link}, {}));
  EXPECT_EQ(link->granted, 0U);
  rounds.finish(part.round, {{}, part.round, {}}, {});
  EXPECT_EQ(link->granted, 40U);
  EXPECT_TRUE(rounds.deliver(message_of(4), {})) << "there is room for others again";
}

std::shared_ptr<round_engine> engine_for(const round_plan& plan) {
  auto values = std::make_shared<const float_vector>(plan.elements, 1.0F);
  return std::make_shared<round_engine>(
    round_request{plan, 0, values, 1}, round_config{},
    round_memory{vector_pool::make(1), buffer_pool::make(0)},
    std::make_shared<testing::mute_port>(plan.members[0].peer.id), [] { return steady_time{}; });
}

TEST(RoundRegistry, StrangersDoNotUseUpWhatIsKeptForMembers) {
  round_registry::limits limits{.strangers_events_max = 4, .strangers_bytes_max = 100};
  round_registry rounds{limits, [](const peer_record&, wire::event) {}};
  auto plan = plan_for(2);
  auto member = plan.members[1].peer;
  EXPECT_FALSE(rounds.has_averaged_with(member.id));
  auto engine = engine_for(plan);
  rounds.begin(engine, [](const peer_record&, const wire::event&) {});
  EXPECT_TRUE(rounds.has_averaged_with(member.id));
  rounds.finish(plan.id, engine->promise(), {});
  EXPECT_TRUE(rounds.has_averaged_with(member.id)) << "also between rounds";
  for (std::uint8_t i = 0; i < 4; ++i)
    EXPECT_TRUE(rounds.deliver(message_from(i, i), {}));
  EXPECT_FALSE(rounds.deliver(message_from(9, 9), {}));
  auto ahead = message_from(0, 77, 1'000); // of the next round
  ahead.from = member;
  for (std::size_t i = 0; i < limits.parked_events_max; ++i)
    ASSERT_TRUE(rounds.deliver(ahead, {})) << i;
  EXPECT_FALSE(rounds.deliver(ahead, {})) << "a member's own limit";
}

TEST(RoundRegistry, GroupMessagesReachTheListenerBeforeDuringAndAfterARound) {
  round_registry rounds{{}, [](const peer_record&, wire::event) {}};
  auto plan = plan_for(2);
  auto other = plan.members[1].peer;
  auto engine = engine_for(plan);
  std::vector<std::size_t> heard; // the alternatives' indices
  auto listener = [&](const peer_record& who, const wire::event& word) {
    EXPECT_EQ(who, other);
    heard.push_back(word.index());
  };
  const wire::event line = wire::bandwidth_report{plan.id, 3e6};
  auto deliver = [&](const wire::event& word) {
    EXPECT_TRUE(rounds.deliver({other, word, {}, nullptr}, {}));
  };
  deliver(line);
  EXPECT_TRUE(heard.empty()) << "no round has begun yet";
  rounds.begin(engine, listener);
  EXPECT_EQ(std::exchange(heard, {}), std::vector{line.index()});
  deliver(line);
  EXPECT_EQ(std::exchange(heard, {}), std::vector{line.index()});
  EXPECT_FALSE(engine->promise().committed);
  rounds.finish(plan.id, engine->promise(), {});
  deliver(line);
  EXPECT_EQ(heard, std::vector{line.index()});
  rounds.forget_old(steady_time{} + round_registry::limits{}.remembered_for);
  EXPECT_EQ(rounds.size(), 0U);
}

TEST(RoundRegistry, OtherThreadsAreServedWhileARoundTakesWhatWasParkedForIt) {
  round_registry rounds{{}, [](const peer_record&, wire::event) {}};
  auto plan = plan_for(2);
  auto other = plan.members[1].peer;
  auto bandwidth = [&](double of) {
    return inbound_event{other, wire::bandwidth_report{plan.id, of}, {}, nullptr};
  };
  std::vector<double> heard;
  std::promise<void> served;
  std::thread reader;
  EXPECT_TRUE(rounds.deliver(bandwidth(1), {}));
  EXPECT_TRUE(rounds.deliver(bandwidth(2), {}));
  rounds.begin(engine_for(plan), [&](const peer_record&, const wire::event& what) {
    heard.push_back(*std::get<wire::bandwidth_report>(what).bandwidth);
    if (heard.size() > 1)
      return;
    reader = std::thread{[&] {
      EXPECT_TRUE(rounds.deliver(message_of(77), {})) << "of another round";
      EXPECT_TRUE(rounds.deliver(bandwidth(3), {}));
      served.set_value();
    }};
    EXPECT_EQ(served.get_future().wait_for(std::chrono::seconds{5}), std::future_status::ready)
      << "the thread that reads from all peers waits for one round";
  });
  reader.join();
  EXPECT_EQ(heard, (std::vector<double>{1, 2, 3})) << "nothing overtakes what came before";
}

TEST(RoundRegistry, KnowsInWhichRoundsThisPeerHasHeldTheResult) {
  round_registry rounds{{}, [](const peer_record&, wire::event) {}};
  auto plan = plan_for(2);
  EXPECT_FALSE(rounds.was_prepared(plan.id)) << "it has not begun";
  auto engine = engine_for(plan);
  rounds.begin(engine, [](const peer_record&, const wire::event&) {});
  EXPECT_FALSE(rounds.was_prepared(plan.id));
  auto ended = engine->promise();
  rounds.finish(plan.id, ended, {});
  EXPECT_FALSE(rounds.was_prepared(plan.id));
  ended.prepared = true;
  rounds.finish(plan.id, ended, {});
  EXPECT_TRUE(rounds.was_prepared(plan.id));
}

TEST(RoundRegistry, ARoundThatEndsWhileItTakesWhatWasParkedStaysEnded) {
  std::vector<wire::event> said;
  round_registry rounds{
    {}, [&](const peer_record&, wire::event what) { said.push_back(std::move(what)); }};
  auto plan = plan_for(2);
  auto other = plan.members[1].peer;
  auto engine = engine_for(plan);
  EXPECT_TRUE(rounds.deliver({other, wire::bandwidth_report{plan.id, 1}, {}, nullptr}, {}));
  rounds.begin(engine, [&](const peer_record&, const wire::event&) {
    rounds.finish(plan.id, engine->promise(), {});
  });
  wire::round_takeover what{.round = plan.id};
  EXPECT_TRUE(rounds.deliver({other, what, {}, nullptr}, {}));
  EXPECT_EQ(said.size(), 1U) << "it answers as a round that has ended";
}

} // namespace
} // namespace waggle
