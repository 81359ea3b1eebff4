#pragma once

// A group_helper with the actors around it, for its tests.

#include <map>

#include <gtest/gtest.h>

#include "actors/training/group_helper.hpp"
#include "runtime/crypto/digest.hpp"
#include "runtime/training/training_state.hpp"
#include "tests/support/actor_test.hpp"
#include "tests/support/states.hpp"

namespace waggle::testing {

/// A helper and the requests that it sends. The test answers them.
struct GroupHelper : actor_test {
  GroupHelper() {
    helper_peers peers;
    peers.averager = averager = spawn_averager();
    peers.tracker = spawn_tracker();
    peers.switchboard = spawn_switchboard();
    peers.exporter = spawn_exporter();
    helper = sys.spawn<group_helper>(ctx, help_config{}, peers);
    keep(helper);
    settle();
  }
  ~GroupHelper() override { end_actors(); }

  // -- the others ---------------------------------------------------------------------------------

  group_averager_actor spawn_averager() {
    auto handle =
      sys.spawn([this](group_averager_actor::pointer self) -> group_averager_actor::behavior_type {
        return {
          [](const inbound_call&) -> caf::result<outbound_answer> { return to_caf(ec::internal); },
          [this](const inbound_event&) { rounds.back().deliver(ended); }, // see end_round
          [](const peer_connected&) {},
          [](const peer_disconnected&) {},
          [](const describe_vector&) {},
          [](const found_group&) -> caf::result<group_view> { return to_caf(ec::not_ready); },
          [this](const enter_group& msg) -> caf::result<group_view> {
            entered.push_back(msg);
            return group;
          },
          [this](quit_group) { ++quits; },
          [](get_residual) { return group_residual{}; },
          [](const find_members&) { return members_found{}; },
          [this, self](const average_in_group& msg) -> caf::result<group_round> {
            asked.push_back(msg);
            rounds.push_back(self->make_response_promise<group_round>());
            return rounds.back();
          },
        };
      });
    keep(handle);
    return handle;
  }
  progress_tracker_actor spawn_tracker() {
    auto handle =
      sys.spawn([this](progress_tracker_actor::pointer) -> progress_tracker_actor::behavior_type {
        return {
          [](const inbound_call&) -> caf::result<outbound_answer> { return to_caf(ec::internal); },
          [](const inbound_event&) {},
          [this](const report_progress& msg) { reports.push_back(msg); },
          [](announce_departure) {},
          [](const peer_connected&) {},
          [](const peer_disconnected&) {},
        };
      });
    keep(handle);
    return handle;
  }
  /// Its peers serve `image`, in one chunk.
  switchboard_actor spawn_switchboard() {
    auto handle =
      sys.spawn([this](switchboard_actor::pointer self) -> switchboard_actor::behavior_type {
        return {
          [this, self](const call_peer& msg) -> caf::result<peer_answer> {
            if (silent) {
              unanswered.push_back(self->make_response_promise<peer_answer>());
              return unanswered.back();
            }
            const auto& its = images.contains(msg.to.id) ? images[msg.to.id] : image;
            if (its.empty())
              return to_caf(ec::unreachable);
            if (const auto* open = std::get_if<wire::open_state>(&msg.what)) {
              opened.push_back(*open);
              donors.push_back(msg.to.id);
              return peer_answer{msg.to.id,
                                 wire::state_header{image_epoch, sha256(its.view()),
                                                    parameters_of(its), its.size, 1U << 16U},
                                 {}};
            }
            return peer_answer{msg.to.id, wire::state_chunk{0}, its};
          },
          [](const notify_peer&) {},
          [](const connect_address&) -> caf::result<peer_connected> {
            return to_caf(ec::unreachable);
          },
        };
      });
    keep(handle);
    return handle;
  }
  metrics_exporter_actor spawn_exporter() {
    auto handle =
      sys.spawn([this](metrics_exporter_actor::pointer) -> metrics_exporter_actor::behavior_type {
        return {
          [](const training_status&) {},   [this](const helper_status& msg) { told = msg; },
          [](const round_ended&) {},       [](const state_download_ended&) {},
          [](const swarm_progress&) {},    [](const peer_connected&) {},
          [](const peer_disconnected&) {},
        };
      });
    keep(handle);
    return handle;
  }

  // -- events -------------------------------------------------------------------------------------

  static swarm_progress::peer client(std::uint64_t n, const std::string& past, std::uint64_t epoch,
                                     std::uint32_t group_size, std::uint64_t samples = 0) {
    swarm_progress::peer p;
    p.who = test_peer(n);
    p.who.addresses.clear();
    p.who.client_mode = true;
    p.epoch = epoch_id{epoch};
    p.samples = samples;
    p.claim.past = {sha256(past), {}, {}, 10};
    p.claim.group_size = group_size;
    p.claim.ready = true;
    p.claim.target_batch_size = 100;
    return p;
  }
  void connect(std::uint64_t n) { tell(helper, peer_connected{test_peer(n)}); }
  void see(std::vector<swarm_progress::peer> peers) {
    swarm_progress view{.peers = std::move(peers)};
    tell(helper, view);
  }
  group_view group_of(std::uint64_t epoch, std::initializer_list<std::uint64_t> members) {
    group_view made{true, epoch_id{epoch}, {}, {ctx.record.id}};
    for (auto n : members)
      made.members.push_back(test_peer(n).id);
    return made;
  }
  /// In a group with clients 2 and 3 at epoch 4.
  void help_two() {
    group = group_of(4, {2});
    connect(2);
    see({client(2, "a", 4, 1)});
    ASSERT_EQ(entered.size(), 1U);
    connect(3);
    tell(helper, group_of(4, {2, 3}));
    see({client(2, "a", 4, 3), client(3, "a", 4, 3)});
  }
  void end_round(bool keeps_majority = true, double weight_sum = 100) {
    group_round round;
    round.report.outcome = round_outcome::complete;
    round.report.weight_sum = weight_sum;
    round.report.contributors = round.report.participants = {test_peer(2).id, test_peer(3).id};
    round.keeps_majority = keeps_majority;
    round.branch = keeps_majority ? sha256("a") : sha256("a fork");
    round.group = group_of(asked.back().epoch.value() + 1, {2, 3});
    end_round(round);
  }
  /// A promise must be delivered by the actor that made it.
  void end_round(const group_round& round) {
    ended = round;
    tell(averager, inbound_event{});
  }
  void hold_state(const std::string& past, std::uint64_t epoch) {
    image = image_of(past, epoch, 7);
  }
  payload image_of(const std::string& past, std::uint64_t epoch, int values) {
    std::vector<std::byte> learner(100, std::byte(values));
    return image_of(past, epoch, learner, sha256(byte_span{learner}));
  }
  payload image_of(const std::string& past, std::uint64_t epoch, byte_span learner,
                   const digest& parameters) {
    training_state state;
    state.parameters = parameters;
    state.epoch = image_epoch = epoch_id{epoch};
    state.past = {sha256(past), {}, {}, 10};
    state.learner = learner;
    return testing::encode_state(state);
  }
  [[nodiscard]] digest parameters_of(const payload& offered) const {
    auto state = decode_state(offered.view());
    return image_parameters.is_zero() && state ? state->parameters : image_parameters;
  }
  /// In a group with clients 2, 3 and 4 at epoch 4.
  void help_three() {
    help_two();
    connect(4);
    tell(helper, group_of(4, {2, 3, 4}));
    see({client(2, "a", 4, 4), client(3, "a", 4, 4), client(4, "a", 4, 4)});
  }
  result<state_snapshot> get_state(std::uint64_t epoch = 4) {
    return ask<state_snapshot>(helper, get_state_snapshot{sha256("a"), epoch_id{epoch}});
  }

  node_context ctx = test_context(1, wall);
  group_helper_actor helper;
  std::vector<enter_group> entered;
  group_view group;
  int quits = 0;
  std::vector<average_in_group> asked;
  std::vector<caf::typed_response_promise<group_round>> rounds;
  group_round ended; // the answer to the last request
  group_averager_actor averager;
  std::vector<report_progress> reports;
  helper_status told;
  payload image;                     // that peers serve
  std::map<peer_id, payload> images; // of those that serve another one
  std::vector<peer_id> donors;       // that were asked for an offer
  bool silent = false;               // no peer answers
  std::vector<caf::typed_response_promise<peer_answer>> unanswered;
  epoch_id image_epoch;    // that they offer
  digest image_parameters; // likewise; zero: those of the image
  std::vector<wire::open_state> opened;
};

} // namespace waggle::testing
