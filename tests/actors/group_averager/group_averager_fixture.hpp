#pragma once

// Group averagers among each other, on a virtual clock.

#include <functional>
#include <memory>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "actors/averaging/group_averager.hpp"
#include "actors/averaging/matchmaker.hpp"
#include "runtime/crypto/digest.hpp"
#include "runtime/training/low_rank.hpp"
#include "tests/support/actor_test.hpp"
#include "tests/support/silent_service.hpp"

namespace waggle::testing {

inline const digest branch = sha256("branch");

/// Group averagers in one actor system. Their switchboards pass events and requests to each other;
/// a test may answer or lose them instead.
struct GroupAverager : actor_test {
  struct peer {
    node_context ctx;
    wired_group_averager_actor actor;
    matchmaker_actor finds;
    std::vector<group_view> views;
    std::vector<epoch_id> calls; // of rounds that other members began
    std::vector<round_report> rounds;
    std::shared_ptr<low_rank> coding;
  };

  ~GroupAverager() override { end_actors(); }

  peer& add(member_mode mode = member_mode::node, const codec_choice& codec = {}) {
    auto i = peers.size();
    auto& p = *peers.emplace_back(std::make_unique<peer>());
    p.ctx = test_context(i + 1, wall);
    p.ctx.bandwidth = std::make_shared<bandwidth_estimator>();
    auto board =
      spawn([this, i](switchboard_actor::pointer self) -> switchboard_actor::behavior_type {
        return {
          [this, i, self](const call_peer& call) -> caf::result<peer_answer> {
            const auto& question = std::get<wire::enter_group>(call.what);
            asked.push_back(call.to.id);
            if (answer_entry)
              if (auto code = answer_entry())
                return peer_answer{call.to.id, wire::join_reply{*code, {}}, {}};
            auto promise = self->make_response_promise<peer_answer>();
            service_actor to = find(call.to.id).actor;
            if (silent.contains(call.to.id))
              to = nobody;
            self->request(to, call.timeout, inbound_call{peers[i]->ctx.record, question, host})
              .then(
                [promise, call](const outbound_answer& answer) mutable {
                  promise.deliver(peer_answer{call.to.id, answer.what, answer.body});
                },
                [promise](const caf::error& why) mutable { promise.deliver(why); });
            return promise;
          },
          [this, i](const notify_peer& msg) {
            if (lets_through(i, msg))
              testing::deliver(find(msg.to.id).ctx, find(msg.to.id).actor,
                               {peers[i]->ctx.record, msg.what, msg.body, nullptr},
                               sys.clock().now());
          },
          [](const connect_address&) -> caf::result<peer_connected> {
            return to_caf(ec::unreachable);
          },
        };
      });
    averaging_config averaging;
    matchmaking_config members{
      .prefix = "gradients", .mode = mode, .request_timeout = request_timeout};
    averaging.auxiliary = mode == member_mode::auxiliary;
    averaging.codec = codec;
    averaging.error_feedback = feedback && codec != codec_choice{};
    averaging.detach_workers = false;
    averaging.observer = [&p](const round_report& report) { p.rounds.push_back(report); };
    auto finds = sys.spawn<matchmaker>(p.ctx, members, board, dht_router_actor{});
    keep(finds);
    p.finds = finds;
    auto made = sys.spawn<group_averager>(p.ctx, averaging, members, board, finds);
    keep(made);
    p.actor = made;
    auto listener =
      spawn([&p](group_listener_actor::pointer) -> group_listener_actor::behavior_type {
        return {
          [&p](const group_view& view) { p.views.push_back(view); },
          [&p](const round_called& call) { p.calls.push_back(call.epoch); },
        };
      });
    tell(p.actor, listen_group{listener});
    if (mode != member_mode::auxiliary) {
      if (rank > 0)
        p.coding = low_rank::make(state_table{{{"w", {8, 8}, state_tensor::kind::parameter}}},
                                  {rank, 0.1}, "run");
      tell(p.actor, describe_vector{values, tensors, p.coding});
    }
    return p;
  }
  peer& find(const peer_id& id) {
    for (auto& p : peers)
      if (p->ctx.record.id == id)
        return *p;
    throw std::logic_error{"nobody has this id"};
  }

  result<group_view> found(peer& p, std::uint64_t epoch = 3, const digest& begun = branch,
                           digest parent = {}) {
    return ask<group_view>(p.actor, found_group{epoch_id{epoch}, begun, parent});
  }
  pending<group_view> enter(peer& p, const std::vector<peer*>& through, digest wanted = branch,
                            digest parent = {}) {
    enter_group msg;
    for (auto* other : through)
      msg.through.push_back(other->ctx.record);
    msg.branch = wanted;
    msg.parent = parent;
    msg.deadline = 30s;
    return ask_later<group_view>(p.actor, msg);
  }
  pending<group_round> average(peer& p, float value, std::uint64_t epoch, bool call = true) {
    return average(p, float_vector(values, value), epoch, call);
  }
  pending<group_round> average(peer& p, float_vector what, std::uint64_t epoch, bool call,
                               double weight = 1, bool deltas = false) {
    average_in_group question{.values = std::make_shared<float_vector>(std::move(what)),
                              .weight = weight,
                              .epoch = epoch_id{epoch},
                              .call = call,
                              .deadline = 20s,
                              .deltas = deltas};
    return ask_later<group_round>(p.actor, std::move(question));
  }
  void lose(peer& by, const peer& who) {
    peer_disconnected how{who.ctx.record.id, {ec::peer_lost, "as the test wants"}};
    tell(by.actor, how);
    tell(by.finds, how);
  }
  static float first_of(const group_round& round) { return round.report.values->front(); }

  // Of peers that are added.
  std::uint64_t values = 64;
  std::vector<std::shared_ptr<const std::vector<tensor_info>>> tensors; // of their vectors
  std::uint32_t rank = 0;                                               // of their coding; 0: none
  bool feedback = true; // of the error of a lossy codec
  milliseconds request_timeout{2'000};
  std::vector<std::unique_ptr<peer>> peers;
  std::set<peer_id> silent;   // answer no request
  std::string host;           // of peers that apply; empty: not known
  std::vector<peer_id> asked; // peers that were asked for admission
  std::function<std::optional<ec>()> answer_entry;
  std::function<bool(std::size_t from, const notify_peer&)> lets_through =
    [](std::size_t, const notify_peer&) { return true; };
  service_actor nobody = spawn(silent_service);
};

} // namespace waggle::testing
