#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/matchmaking/group_search.hpp"

namespace waggle {

/// Peers are identified by their numbers; a smaller number means a smaller id.
inline peer_record peer(unsigned number, bool client = false) {
  peer_record out;
  out.id.bytes.back() = static_cast<std::byte>(number);
  if (!client)
    out.addresses.push_back({"peer-" + std::to_string(number), 7700});
  out.client_mode = client;
  return out;
}

inline unsigned number_of(const peer_record& p) {
  return static_cast<unsigned>(p.id.bytes.back());
}

inline group_search::seeker seeker(unsigned number, bool client = false) {
  return {peer(number, client), client, false, {}, client ? 1U : 0U, {}};
}

/// An auxiliary that joins groups beside their members.
inline group_search::seeker extra(unsigned number) {
  return {peer(number), false, true, {}, 2U, {}};
}

template <class Action>
std::vector<Action> all(const group_search::actions& actions) {
  std::vector<Action> out;
  for (const auto& action : actions)
    if (const auto* match = std::get_if<Action>(&action))
      out.push_back(*match);
  return out;
}

template <class Action>
std::size_t count(const group_search::actions& actions) {
  return all<Action>(actions).size();
}

/// The only one of its kind.
template <class Action>
Action the(const group_search::actions& actions) {
  auto found = all<Action>(actions);
  EXPECT_EQ(found.size(), 1U);
  return found.at(0);
}

/// The peer that the actions ask; zero: none.
inline unsigned asked(const group_search::actions& actions) {
  auto asks = all<group_search::ask>(actions);
  return asks.empty() ? 0U : number_of(asks.front().to);
}

/// All peers around a search. Each gives the same answer whenever it is asked: ec::none (accepted),
/// unless a test specifies another one.
class scripted_peers {
public:
  void say(unsigned number, ec answer) { answers_[number] = answer; }

  /// Carries out the actions of `search` from here on, while time passes, until it gives up.
  failure reason_of(group_search& search, group_search::actions actions,
                    group_search::moment& now) const {
    for (auto latest = now.steady + 1min; now.steady < latest;) {
      for (const auto& failed : all<group_search::failed>(actions))
        return failed.why;
      if (auto number = asked(actions); number != 0) {
        actions = search.on_answer(peer(number).id, answer_of(number), {}, now);
        continue;
      }
      now.steady += 20ms;
      now.swarm += 20ms;
      actions = search.on_time(now);
    }
    return {ec::internal, "it never ended"};
  }

private:
  [[nodiscard]] ec answer_of(unsigned number) const {
    auto known = answers_.find(number);
    return known == answers_.end() ? ec::none : known->second;
  }

  std::map<unsigned, ec> answers_;
};

/// Peer 5 searches; others may be smaller or larger than it.
class GroupSearch : public testing::Test {
protected:
  group_search::options opts;
  milliseconds patience{20'000};
  group_search::moment now{steady_time{1000h}, swarm_time{500'000h}};

  void pass(std::chrono::nanoseconds dt) {
    now.steady += dt;
    now.swarm += dt;
  }
  swarm_time at(milliseconds after) const { return now.swarm + after; }
  /// The expiration that peer 5 declares if it starts now.
  swarm_time own() const { return at(opts.min_matchmaking_time); }

  group_search make(bool client = false) const {
    return {seeker(5, client), opts, now.steady + patience, random_source{1}};
  }
  group_search started(bool client = false) const {
    auto search = make(client);
    (void)search.start(now);
    return search;
  }
  /// Peers that are known before the search starts, and when they expire; none: connected only.
  using known = std::vector<std::pair<unsigned, std::optional<swarm_time>>>;
  group_search making(const known& candidates) const {
    auto search = make();
    for (const auto& [number, expiration] : candidates)
      search.candidate(peer(number), expiration);
    return search;
  }
  unsigned asked_first(const known& candidates) const {
    return asked(making(candidates).start(now));
  }
  group_search started_with(const known& candidates) const {
    auto search = making(candidates);
    (void)search.start(now);
    return search;
  }
  /// A started search that asks this one.
  group_search asking(unsigned number, const known& candidates) const {
    auto search = making(candidates);
    EXPECT_EQ(asked(search.start(now)), number);
    return search;
  }
  /// A search that has accepted these followers.
  group_search leading(std::initializer_list<unsigned> followers) const {
    auto search = started();
    for (auto number : followers)
      EXPECT_EQ(search.on_join(seeker(number), own(), now).code, ec::none);
    return search;
  }
  /// A search that was accepted by this leader.
  group_search following(unsigned leader) const {
    auto search = asking(leader, {{leader, std::nullopt}});
    (void)search.on_answer(peer(leader).id, ec::none, {}, now);
    return search;
  }
};

} // namespace waggle
