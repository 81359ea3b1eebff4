#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "actors/averaging/group_averager.hpp"
#include "actors/averaging/vector_averager.hpp"
#include "runtime/averaging/bandwidth_estimator.hpp"
#include "runtime/averaging/shares.hpp"
#include "tests/support/actor_test.hpp"

namespace waggle::testing {

/// Several averagers, with their group_averagers, in one actor system. Their switchboards pass
/// messages to each other; their matchmakers put searching peers into groups of `group_size`, in
/// the order of the searches.
class averaging_world : public actor_test {
protected:
  struct peer {
    node_context ctx;
    member_mode mode = member_mode::node;
    matchmaker_actor maker;
    wired_group_averager_actor service; // the same actor as `group`
    kept_group_actor group;
    averager_actor averager;
    bool deaf = false; // messages to it are lost
  };
  struct search {
    std::size_t peer;
    find_group what;
    std::uint64_t number;
  };

  /// Adds a peer; its index is the number of peers before.
  peer& add(averaging_config config = {}, member_mode mode = member_mode::node) {
    auto index = peers.size();
    auto& p = *peers.emplace_back(std::make_unique<peer>());
    p.ctx = test_context(index + 1, wall);
    p.ctx.bandwidth = std::make_shared<bandwidth_estimator>();
    p.mode = mode;
    config.auxiliary = mode == member_mode::auxiliary;
    auto board = spawn([this, index](switchboard_actor::pointer) { return switchboard_of(index); });
    auto maker = spawn([this, index](matchmaker_actor::stateful_pointer<maker_state> self) {
      return matchmaker_of(self, index);
    });
    p.maker = maker;
    matchmaking_config members{.prefix = "test", .mode = mode, .min_group_size = 1};
    auto group = spawn<group_averager>(p.ctx, config, members, board, maker);
    p.service = group;
    p.group = group;
    auto steps = spawn<vector_averager>(p.ctx, config, maker, group);
    tell(group, listen_group{steps});
    p.averager = steps;
    return p;
  }

  std::shared_ptr<const float_vector> vector(std::vector<float> values) {
    return std::make_shared<const float_vector>(values.begin(), values.end());
  }
  average_vector question(std::vector<float> values, double weight = 1) {
    return {.values = vector(std::move(values)), .weight = weight};
  }
  void deliver(const peer& to, const inbound_event& event) {
    testing::deliver(to.ctx, to.service, event, sys.clock().now());
  }
  pending<round_report> average(std::size_t who, average_vector what) {
    return ask_later<round_report>(peers[who]->averager, std::move(what));
  }
  /// Finds a group of one round for a vector of so many values.
  pending<group_formed> find(std::size_t who, std::size_t elements) {
    find_group question{.codecs = {{elements, codec_id::none}}, .one_round = true};
    return ask_later<group_formed>(peers[who]->group, std::move(question));
  }
  /// Averages in the group that was found.
  pending<group_round> average_once(std::size_t who, std::vector<float> values, double weight = 1) {
    average_in_group what{.values = vector(std::move(values)), .weight = weight};
    return ask_later<group_round>(peers[who]->group, std::move(what));
  }

  std::vector<std::unique_ptr<peer>> peers;
  std::vector<search> searches;
  std::size_t group_size = 2;
  bool regrouped = false; // the members of each group move to different buckets
  /// Other fields of the plans.
  std::function<void(round_plan&)> change_plan = [](round_plan&) {};
  std::uint64_t groups = 0;
  /// Whether a message of peer `from` arrives.
  std::function<bool(std::size_t from, const notify_peer& msg)> lets_through =
    [](std::size_t, const notify_peer&) { return true; };

private:
  struct maker_state {
    static inline const char* name = "fake-matchmaker";
    std::map<std::uint64_t, caf::typed_response_promise<group_formed>> open;
  };
  /// To a fake matchmaker: this search has ended.
  struct verdict {
    std::uint64_t number;
    result<round_plan> outcome;
    bool leads = false;
  };

  switchboard_actor::behavior_type switchboard_of(std::size_t from) {
    return {
      [](const call_peer&) -> caf::result<peer_answer> { return to_caf(ec::unreachable); },
      [this, from](const notify_peer& msg) {
        if (!lets_through(from, msg))
          return;
        for (auto& p : peers)
          if (p->ctx.record.id == msg.to.id && !p->deaf)
            deliver(*p, {peers[from]->ctx.record, msg.what, msg.body, nullptr});
      },
      [](const connect_address&) -> caf::result<peer_connected> { return to_caf(ec::unreachable); },
    };
  }

  matchmaker_actor::behavior_type
  matchmaker_of(matchmaker_actor::stateful_pointer<maker_state> self, std::size_t index) {
    return {
      [](const inbound_call&) -> caf::result<outbound_answer> { return to_caf(ec::internal); },
      [this, self](const inbound_event&) { settle_searches(self); },
      [this, self, index](const find_group& msg) -> caf::result<group_formed> {
        auto promise = self->make_response_promise<group_formed>();
        self->state.open.emplace(++numbers_, promise);
        searches.push_back({index, msg, numbers_});
        form_groups();
        return promise;
      },
      [](const find_place&) -> caf::result<place_found> { return to_caf(ec::unreachable); },
      [](const is_plan_awaited&) { return false; },
      [](const plan_judged&) {},
      [](const set_open_group&) {},
      [](is_place_wanted) { return false; },
      [this, self, index](cancel_search) {
        for (const auto& s : searches)
          if (s.peer == index)
            verdicts_.push_back({s.number, failure{ec::cancelled, {}}});
        std::erase_if(searches, [&](const search& s) { return s.peer == index; });
        settle_searches(self);
      },
      [](const peer_connected&) {},
      [](const peer_disconnected&) {},
    };
  }

  void settle_searches(matchmaker_actor::stateful_pointer<maker_state> self) {
    std::erase_if(verdicts_, [&](const verdict& v) {
      auto found = self->state.open.find(v.number);
      if (found == self->state.open.end())
        return false;
      auto promise = std::move(found->second);
      self->state.open.erase(found);
      if (v.outcome) {
        // Only the leader knows the bandwidths of the others.
        partition_terms terms{{v.outcome->part_elements, false}, 0, true, {}};
        if (v.leads)
          terms.bandwidths.resize(v.outcome->members.size());
        promise.deliver(group_formed{*v.outcome, regrouped, std::move(terms)});
      } else {
        promise.deliver(to_caf(v.outcome.error()));
      }
      return true;
    });
  }

  void form_groups() {
    while (searches.size() >= group_size) {
      std::vector<search> members(searches.begin(),
                                  searches.begin() + static_cast<std::ptrdiff_t>(group_size));
      searches.erase(searches.begin(), searches.begin() + static_cast<std::ptrdiff_t>(group_size));
      // A client cannot lead.
      std::stable_sort(members.begin(), members.end(), [this](const search& a, const search& b) {
        return (peers[a.peer]->mode == member_mode::client)
               < (peers[b.peer]->mode == member_mode::client);
      });
      round_plan plan;
      plan.id.bytes[0] = std::byte{1};
      plan.id.bytes[1] = static_cast<std::byte>(++groups);
      plan.prefix = "test";
      plan.epoch = members[0].what.epoch;
      plan.codecs = members[0].what.codecs;
      plan.elements = elements_of(plan.codecs);
      plan.part_elements = 2;
      for (const auto& m : members) {
        plan.members.push_back({peers[m.peer]->ctx.record, peers[m.peer]->mode});
        plan.gathered.push_back(m.what.gather);
      }
      std::vector<share_bid> bids;
      for (const auto& m : plan.members)
        bids.push_back({m.mode, {}});
      auto shares = balanced_shares(bids, plan.elements, 0);
      ASSERT_TRUE(shares);
      plan.shares = *shares;
      change_plan(plan);
      ASSERT_TRUE(validate_plan(plan)) << to_string(validate_plan(plan).error());
      for (const auto& m : members) {
        verdicts_.push_back({m.number, plan, &m == &members.front()});
        // A promise can only be delivered by the actor that made it, while it runs.
        caf::anon_send(peers[m.peer]->maker, inbound_event{});
      }
    }
  }
  std::vector<verdict> verdicts_;
  std::uint64_t numbers_ = 0;
};

} // namespace waggle::testing
