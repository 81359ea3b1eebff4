#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "actors/averaging/moshpit_averager.hpp"
#include "runtime/crypto/digest.hpp"
#include "tests/support/actor_test.hpp"

namespace waggle::testing {

inline const digest branch = sha256("branch");
constexpr std::uint64_t values = 4;

/// One moshpit_averager. The test plays its group_averager, its tracker and its caller.
struct moshpit_fixture : actor_test {
  /// `extra`: matchmaking_config::extra.
  explicit moshpit_fixture(bool extra = false) {
    ctx = test_context(1, wall);
    auto rounds = spawn([this](kept_group_actor::stateful_pointer<rounds_state> self) {
      return rounds_behavior(self);
    });
    rounds_ = rounds;
    matchmaking_config members{.extra = extra, .target_group_size = 8, .min_matchmaking_time = 3s};
    if (extra)
      members.mode = member_mode::auxiliary;
    actor = spawn<moshpit_averager>(ctx, averaging_config{}, members, 1, rounds_);
    auto listener =
      spawn([this](group_listener_actor::pointer) -> group_listener_actor::behavior_type {
        return {
          [this](const group_view& view) { views.push_back(view); },
          [this](const round_called& call) { calls.push_back(call.epoch); },
        };
      });
    tell(actor, listen_group{listener});
    tell(actor, describe_vector{values});
  }
  ~moshpit_fixture() override { end_actors(); }

  struct rounds_state {
    static inline const char* name = "fake-group-averager";
    std::optional<caf::typed_response_promise<group_formed>> search;
    std::optional<caf::typed_response_promise<group_round>> round;
  };
  kept_group_actor::behavior_type
  rounds_behavior(kept_group_actor::stateful_pointer<rounds_state> self) {
    return {
      [](const inbound_call&) -> caf::result<outbound_answer> { return to_caf(ec::internal); },
      [](const inbound_event&) {},
      [](const describe_vector&) {},
      [](const found_group&) { return group_view{}; },
      [](const enter_group&) { return group_view{}; },
      [this](quit_group) { ++quits; },
      [](get_residual) { return group_residual{}; },
      [](const find_members&) { return members_found{}; },
      [this, self](const average_in_group& msg) -> caf::result<group_round> {
        given.push_back(msg);
        running = true;
        return self->state.round.emplace(self->make_response_promise<group_round>());
      },
      [this, self](const peer_connected&) { // the test finds a group
        running = false;
        std::exchange(self->state.search, std::nullopt)->deliver(group_formed{});
      },
      [this, self](const peer_disconnected&) { // the test ends the search, or the round
        running = false;
        if (auto search = std::exchange(self->state.search, std::nullopt))
          search->deliver(to_caf(next.why));
        else
          std::exchange(self->state.round, std::nullopt)->deliver(group_round{next, true, {}, {}});
      },
      [this, self](const waggle::find_group& msg) -> caf::result<group_formed> {
        searches.push_back(msg);
        running = true;
        return self->state.search.emplace(self->make_response_promise<group_formed>());
      },
      [this](cancel_search) { ++cancelled; },
    };
  }
  /// Ends the search with the report's reason, or the round.
  void end_step(round_report report) {
    ASSERT_TRUE(running);
    next = std::move(report);
    tell(rounds_, peer_disconnected{});
  }
  void find_group() { tell(rounds_, peer_connected{}); }
  static round_report mean_of(std::uint32_t peers) {
    return {.outcome = round_outcome::complete,
            .group_size = peers,
            .weight_sum = static_cast<double>(peers),
            .values = std::make_shared<float_vector>(values, 2.0F)};
  }
  static round_report failed(ec why) { return {.why = {why, ""}}; }

  peer_record record(std::uint8_t n) { return test_context(n, wall).record; }
  /// What the tracker reports: peers 2, 3, … at these epochs.
  void see(const std::vector<std::uint64_t>& epochs) {
    swarm_progress view;
    for (std::size_t i = 0; i < epochs.size(); ++i) {
      auto& p = view.peers.emplace_back();
      p.who = record(static_cast<std::uint8_t>(i + 2));
      p.epoch = epoch_id{epochs[i]};
      p.claim.past.branch = branch;
      p.claim.group_size = 1;
      p.claim.ready = true;
    }
    tell(actor, view);
  }
  void found(std::uint64_t epoch = 5) {
    ASSERT_TRUE(ask<group_view>(actor, found_group{epoch_id{epoch}, branch}).ok());
  }
  /// With two others, at the same epoch.
  void found_of_three() {
    found();
    see({5, 5});
  }
  pending<members_found> search(std::uint64_t epoch, bool call = false) {
    return ask_later<members_found>(actor, find_members{epoch_id{epoch}, call, 60s, true});
  }
  static average_in_group vector_at(std::uint64_t epoch) {
    return {.values = std::make_shared<float_vector>(values, 1.0F),
            .weight = 1,
            .epoch = epoch_id{epoch}};
  }
  /// Finds a group and gives it our values.
  pending<group_round> average(std::uint64_t epoch) {
    auto found = search(epoch);
    if (running)
      find_group();
    EXPECT_TRUE(found.get().ok() && !found.get()->ended);
    return ask_later<group_round>(actor, vector_at(epoch));
  }
  round_id call_of(std::uint64_t epoch) {
    run_group run{ctx.record.id, 1};
    run.enter(branch, epoch_id{});
    return run.call_of(epoch_id{epoch});
  }
  void call(std::uint8_t from, const round_id& id) {
    tell(actor, inbound_event{record(from), wire::call_round{id}, {}, nullptr});
  }

  node_context ctx;
  kept_group_actor rounds_;
  moshpit_averager_actor actor;
  std::vector<group_view> views;
  std::vector<epoch_id> calls;
  std::vector<waggle::find_group> searches; // received by the group_averager, like the next ones
  std::vector<average_in_group> given;
  int cancelled = 0; // searches
  int quits = 0;
  bool running = false; // a search or a round
  round_report next;
};

} // namespace waggle::testing
