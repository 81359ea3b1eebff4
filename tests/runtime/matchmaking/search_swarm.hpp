#pragma once

// Several searches that exchange messages through a seeded network, on virtual time.

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/matchmaking/group_search.hpp"

namespace waggle::testing {

struct conditions {
  std::size_t peers = 4;
  std::size_t clients = 0;
  std::size_t extra = 0;           // auxiliaries beside the groups: the last ones of the peers
  double loss = 0;                 // of every message
  milliseconds delay_max{2};       // of every message
  milliseconds start_spread{20};   // between the first and the last search
  milliseconds head_start{0};      // of the first peer
  std::size_t first_id = 31;       // the first byte of the first peer's id
  bool connected = true;           // otherwise they only find each other through the table
  std::size_t crashes = 0;         // silent; the others notice a second later
  std::vector<std::string> keys{}; // of the peers' buckets; empty: one for all
  std::set<std::size_t> absent{};  // these do not search
  milliseconds patience{15'000};
  group_search::options options{};
};

class swarm {
public:
  struct group {
    std::size_t leader = 0;
    std::set<std::size_t> members;
    std::vector<std::size_t> order; // the leader first

    friend bool operator==(const group&, const group&) = default;
  };
  struct member {
    std::optional<group_search> search;
    std::optional<group> formed;
    std::optional<failure> failed;
    std::size_t ends = 0;
    bool crashed = false;
    steady_time started;
    steady_time ended;
  };

  swarm(std::uint64_t seed, conditions given) : given_(std::move(given)), random_(seed) {
    members_.resize(given_.peers);
    for (std::size_t i = 0; i < given_.peers; ++i)
      if (given_.absent.count(i) == 0)
        later(random_below(given_.start_spread) + (i == 0 ? 0ms : given_.head_start),
              [this, i] { start(i); });
    for (std::size_t i = 0; i < given_.crashes; ++i)
      later(random_below(2s), [this, i] { crash(i); });
  }

  /// Runs until there are no more events.
  void run() {
    while (!events_.empty()) {
      auto next = events_.begin();
      now_ = next->first.first;
      auto action = std::move(next->second);
      events_.erase(next);
      action();
    }
  }

  [[nodiscard]] const std::vector<member>& members() const { return members_; }

private:
  using seeker = group_search::seeker;

  [[nodiscard]] std::string key(std::size_t i) const {
    return given_.keys.empty() ? std::string{} : given_.keys[i];
  }
  [[nodiscard]] bool is_client(std::size_t i) const { return i < given_.clients; }
  [[nodiscard]] bool is_extra(std::size_t i) const { return i + given_.extra >= given_.peers; }
  [[nodiscard]] seeker who(std::size_t i) const {
    seeker out;
    // Ids in a different order than indices, so that clients are not always the smallest.
    out.record.id.bytes[0] = static_cast<std::byte>((i * 97 + given_.first_id) % 251);
    out.record.id.bytes[31] = static_cast<std::byte>(i);
    out.client = out.record.client_mode = is_client(i);
    out.extra = is_extra(i);
    return out;
  }
  static std::size_t index(const peer_record& p) {
    return static_cast<std::size_t>(p.id.bytes[31]);
  }
  [[nodiscard]] group_search::moment now() const {
    return {now_, swarm_time{500'000h} + (now_ - steady_time{})};
  }

  steady_time::duration random_below(milliseconds bound) {
    auto limit = std::chrono::nanoseconds{bound}.count();
    return std::chrono::nanoseconds{random_.below(static_cast<std::uint64_t>(limit) + 1)};
  }
  void later(steady_time::duration after, std::function<void()> what) {
    events_.emplace(std::pair{now_ + after, ++sequence_}, std::move(what));
  }

  /// Delivers in order per pair of peers, like frames of one link. False: lost.
  bool transmit(std::size_t from, std::size_t to, std::function<void(member&)> deliver) {
    if (members_[from].crashed || random_.unit() < given_.loss)
      return false;
    auto& last = last_arrival_[{from, to}];
    last = std::max(last, now_ + random_below(given_.delay_max));
    events_.emplace(std::pair{last, ++sequence_}, [this, to, deliver = std::move(deliver)] {
      if (!members_[to].crashed)
        deliver(members_[to]);
    });
    return true;
  }

  void start(std::size_t i) {
    auto& m = members_[i];
    m.started = now_;
    m.search.emplace(who(i), given_.options, now_ + given_.patience,
                     random_.fork(std::to_string(i)));
    if (given_.connected)
      for (std::size_t other = 0; other < members_.size(); ++other)
        if (other != i) {
          auto asked = asked_early_.find({other, i});
          m.search->candidate(who(other).record, asked == asked_early_.end()
                                                   ? std::nullopt
                                                   : std::optional{asked->second});
        }
    perform(i, m.search->start(now()));
    later(20ms, [this, i] { tick(i); });
  }

  void tick(std::size_t i) {
    auto& m = members_[i];
    if (m.ends > 0 || m.crashed)
      return;
    perform(i, m.search->on_time(now()));
    later(20ms, [this, i] { tick(i); });
  }

  void crash(std::size_t i) {
    members_[i].crashed = true;
    for (std::size_t other = 0; other < members_.size(); ++other)
      if (other != i)
        later(1s, [this, i, other] {
          auto& m = members_[other];
          if (m.search && !m.crashed && m.ends == 0)
            perform(other, m.search->on_lost(who(i).record.id, now()));
        });
  }

  void end(std::size_t i) {
    ++members_[i].ends;
    members_[i].ended = now_;
  }

  void perform(std::size_t i, const group_search::actions& actions) {
    for (const auto& action : actions)
      std::visit([&](const auto& a) { act(i, a); }, action);
  }

  void act(std::size_t i, const group_search::declare& a) { table_[i] = a.expiration; }
  void act(std::size_t i, const group_search::withdraw&) { table_.erase(i); }
  void act(std::size_t i, const group_search::look_up&) {
    later(random_below(10ms), [this, i] {
      auto& m = members_[i];
      if (m.ends > 0 || m.crashed)
        return;
      for (const auto& [other, expiration] : table_)
        if (expiration > now().swarm && key(other) == key(i))
          m.search->candidate(who(other).record, expiration);
    });
  }
  void act(std::size_t i, const group_search::ask& a) {
    auto to = index(a.to);
    auto answered = std::make_shared<bool>(false);
    auto answer = [this, i, to, answered](ec code, const std::optional<peer_record>& suggested) {
      if (std::exchange(*answered, true))
        return;
      auto& m = members_[i];
      if (m.ends > 0) {
        if (code == ec::none && !(m.formed && m.formed->leader == to))
          act(i, group_search::leave{who(to).record});
        return;
      }
      if (!m.crashed)
        perform(i, m.search->on_answer(who(to).record.id, code, suggested, now()));
    };
    later(given_.options.request_timeout, [answer] { answer(ec::timeout, std::nullopt); });
    transmit(i, to, [this, i, to, answer, expiration = a.expiration](member& m) {
      group_search::join_answer reply{ec::not_looking, {}, {}};
      if (m.search && m.ends == 0) {
        if (key(i) == key(to))
          reply = m.search->on_join(who(i), expiration, now());
        else
          reply.code = ec::wrong_group_key;
        m.search->turned_away(who(i).record.id, reply.code);
      } else if (!is_client(i) && !is_extra(i)) {
        asked_early_[{i, to}] = expiration; // recent_seekers
      }
      transmit(to, i, [answer, reply](member&) { answer(reply.code, reply.suggested); });
      perform(to, reply.then);
    });
  }
  void act(std::size_t i, const group_search::leave& a) {
    transmit(i, index(a.leader), [this, i](member& m) {
      if (m.ends == 0)
        m.search->on_leave(who(i).record.id);
    });
  }
  void act(std::size_t i, const group_search::disband& a) {
    for (const auto& follower : a.followers) {
      auto to = index(follower);
      transmit(i, to, [this, i, to, hint = a.suggested](member& m) {
        if (m.ends == 0)
          perform(to, m.search->on_disband(who(i).record.id, hint, now()));
      });
    }
  }
  void act(std::size_t i, const group_search::begin& a) {
    group formed{i, {i}, {i}};
    for (const auto& follower : a.followers) {
      formed.members.insert(index(follower.record));
      formed.order.push_back(index(follower.record));
    }
    for (const auto& follower : a.followers) {
      auto to = index(follower.record);
      transmit(i, to, [this, i, to, formed](member& m) {
        if (m.ends > 0 || !m.search->on_begin(who(i).record.id))
          return;
        auto orphans = m.search->take_followers();
        act(to, group_search::disband{std::move(orphans), who(i).record});
        act(to, group_search::withdraw{});
        m.formed = formed;
        end(to);
      });
    }
    members_[i].formed = formed;
    end(i);
  }
  void act(std::size_t i, const group_search::failed& a) {
    members_[i].failed = a.why;
    end(i);
  }

  conditions given_;
  random_source random_;
  steady_time now_{};
  std::uint64_t sequence_ = 0;
  std::map<std::pair<steady_time, std::uint64_t>, std::function<void()>> events_;
  std::map<std::pair<std::size_t, std::size_t>, steady_time> last_arrival_;
  std::map<std::size_t, swarm_time> table_;
  std::map<std::pair<std::size_t, std::size_t>, swarm_time> asked_early_; // by asker and asked
  std::vector<member> members_;
};

/// The properties that hold under all conditions.
inline void expect_contract(const swarm& s, const conditions& given) {
  const auto& members = s.members();
  for (std::size_t i = 0; i < members.size(); ++i) {
    const auto& m = members[i];
    if (m.crashed || given.absent.count(i) > 0)
      continue;
    EXPECT_EQ(m.ends, 1u) << "peer " << i;
    EXPECT_NE(m.formed.has_value(), m.failed.has_value()) << "peer " << i;
    EXPECT_LE(m.ended - m.started, given.patience + 20ms) << "peer " << i;
    if (!m.formed)
      continue;
    EXPECT_TRUE(m.formed->members.count(i)) << "peer " << i;
    EXPECT_EQ(m.formed, members[m.formed->leader].formed) << "peer " << i;
    auto size = static_cast<std::size_t>(
      std::count_if(m.formed->members.begin(), m.formed->members.end(),
                    [&](std::size_t j) { return j + given.extra < given.peers; }));
    EXPECT_GE(size, given.options.min_group_size);
    EXPECT_LE(size, given.options.target_group_size);
    EXPECT_GE(m.formed->leader, given.clients) << "a client leads";
  }
}

} // namespace waggle::testing
