// Whole rounds of state machines that communicate over a queue with random delays: thousands of
// seeds with crashes, broken links, wrong suspicions, and concurrent takeovers.

#include <functional>
#include <map>

#include <gtest/gtest.h>

#include "runtime/averaging/round_protocol.hpp"
#include "runtime/core/random.hpp"
#include "runtime/crypto/digest.hpp"
#include "tests/runtime/averaging/plans.hpp"

namespace waggle {
namespace {

using protocol = round_protocol;

struct faults {
  std::size_t crashes_max = 0;    // at random times; their last messages may be lost
  std::size_t suspicions_max = 0; // of members that are alive
  std::size_t give_ups_max = 0;   // members that end by themselves
  bool silent = false;            // crashes are detected by timeouts only
  std::uint32_t faulty_max = 0;   // members that may lie, according to the plan; none does
};

/// One round. Time is in milliseconds.
class round_model {
public:
  struct member {
    explicit member(const round_plan& plan, std::size_t index, protocol::options opts)
      : machine(plan, index, opts), view(first_view(plan)) {}
    protocol machine;
    round_view view;
    bool alive = true;
    bool complete = false;  // holds the result over the view's contributors
    std::int64_t since = 0; // when it entered the view
    std::int64_t completed = 0;
    bool contributed = false;
    std::optional<round_view> decided;
    std::optional<failure> failed;
    std::int64_t ended_at = 0;
  };

  round_model(std::uint64_t seed, std::size_t n, faults f)
    : random_(seed), plan_(plan_for(n)), faults_(f) {
    plan_.reduce_by.faulty_max = f.faulty_max;
    protocol::options opts{.takeover_timeout = milliseconds{2'000}};
    for (std::size_t i = 0; i < n; ++i) {
      members_.emplace_back(plan_, i, opts);
      at(below(400), [this, i] {
        if (members_[i].alive)
          members_[i].contributed = true;
      });
      try_to_complete(i);
      tick(i);
    }
    for (std::size_t i = 0, crashes = below(f.crashes_max + 1); i < crashes; ++i)
      at(below(faults_end), [this] { crash(random_.below(members_.size())); });
    for (std::size_t i = 0, n_wrong = below(f.suspicions_max + 1); i < n_wrong; ++i)
      at(below(faults_end), [this] {
        auto a = random_.below(members_.size());
        auto b = random_.below(members_.size());
        if (a != b)
          suspect(a, b, ec::peer_lost);
      });
    for (std::size_t i = 0, n_ends = below(f.give_ups_max + 1); i < n_ends; ++i)
      at(below(faults_end), [this] {
        auto who = random_.below(members_.size());
        if (members_[who].alive)
          perform(who, members_[who].machine.give_up({ec::cancelled, "test"}));
      });
  }

  void run() {
    while (!events_.empty() && now_ < deadline_ms) {
      auto next = events_.extract(events_.begin());
      now_ = next.key().first;
      next.mapped()();
      if (all_ended())
        break;
    }
  }

  [[nodiscard]] bool all_ended() const {
    for (const auto& m : members_)
      if (m.alive && !m.decided && !m.failed)
        return false;
    return true;
  }

  /// The first violation; empty if there is none.
  [[nodiscard]] std::string violation() const {
    if (!violation_.empty())
      return violation_;
    std::optional<std::uint64_t> agreed;
    for (const auto& m : members_) {
      if (!m.decided)
        continue;
      if (agreed && *agreed != m.decided->contributors)
        return "two members committed different contributors";
      agreed = m.decided->contributors;
      if (!prepared_by_quorum(*m.decided))
        return "a view was committed that no quorum had prepared";
    }
    return {};
  }

  const std::vector<member>& members() const { return members_; }
  std::size_t alive() const {
    std::size_t n = 0;
    for (const auto& m : members_)
      n += m.alive ? 1 : 0;
    return n;
  }
  std::string describe() const {
    std::string out;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      const auto& m = members_[i];
      out += std::to_string(i) + (m.alive ? "" : " crashed") + " view "
             + std::to_string(m.machine.view().number) + " coordinator "
             + std::to_string(m.machine.coordinator())
             + (m.decided ? " committed " + std::to_string(m.decided->contributors) : "")
             + (m.failed ? " failed " + to_string(*m.failed) : "") + "; ";
    }
    return out;
  }

  static constexpr std::int64_t faults_end = 8'000;
  static constexpr std::int64_t deadline_ms = 120'000;
  static constexpr std::int64_t stall_ms = 1'000;

private:
  std::size_t below(std::size_t n) { return n == 0 ? 0 : random_.below(n); }
  void at(std::int64_t delay, std::function<void()> what) {
    events_.emplace(std::pair{now_ + delay, sequence_++}, std::move(what));
  }
  steady_time clock() const { return steady_time{} + milliseconds{now_}; }

  void crash(std::size_t who) {
    auto& victim = members_[who];
    if (!victim.alive)
      return;
    victim.alive = false;
    crashed_at_[who] = now_;
    if (faults_.silent)
      return;
    for (std::size_t i = 0; i < members_.size(); ++i)
      at(1 + static_cast<std::int64_t>(random_.below(50)),
         [this, i, who] { suspect(i, who, ec::peer_lost); });
  }

  void suspect(std::size_t by, std::size_t whom, ec reason) {
    if (members_[by].alive)
      perform(by, members_[by].machine.on_suspicion(whom, reason, clock()));
  }

  /// Simulates the data: the result is complete after a while, if all contributors and reducers are
  /// there.
  void try_to_complete(std::size_t who) {
    at(1 + static_cast<std::int64_t>(random_.below(300)), [this, who] {
      auto& m = members_[who];
      if (!m.alive || m.machine.ended())
        return;
      if (!m.complete) {
        bool possible = true;
        m.view.contributor_set().for_each(
          [&](std::size_t i) { possible = possible && members_[i].contributed; });
        m.view.participant_set().for_each(
          [&](std::size_t i) { possible = possible && (members_[i].alive || results_are_out(i)); });
        if (possible) {
          m.complete = true;
          m.completed = now_;
          perform(who, m.machine.on_result_complete(m.view.number, held(who)));
        }
      }
      try_to_complete(who);
    });
  }
  /// The digest of a result is a function of its contributors.
  digest held(std::size_t who) const {
    return sha256(std::to_string(members_[who].view.contributors));
  }
  bool results_are_out(std::size_t crashed) {
    return (crashed_at_[crashed] + static_cast<std::int64_t>(crashed)) % 3 == 0;
  }

  void tick(std::size_t who) {
    at(125, [this, who] {
      auto& m = members_[who];
      if (!m.alive || m.machine.ended())
        return;
      perform(who, m.machine.on_time(clock()));
      if (m.machine.ended())
        return;
      if (!m.complete) {
        if (now_ - m.since >= stall_ms) {
          auto missing = m.view.contributor_set() | m.view.participant_set();
          missing.for_each([&](std::size_t i) {
            if (i != who && (!members_[i].alive || members_[i].machine.ended())
                && !m.machine.ended())
              suspect(who, i, ec::stalled);
          });
        }
      } else if (now_ - m.completed >= (m.machine.coordinator() == who ? 3 : 5) * stall_ms) {
        m.machine.awaited().for_each([&](std::size_t i) {
          if (i != who && !m.machine.ended())
            suspect(who, i, ec::stalled);
        });
      }
      tick(who);
    });
  }

  void post(std::size_t from, std::size_t to, std::function<void(protocol&, member&)> what) {
    if (from == to) {
      violation_ = "a member talks to itself";
      return;
    }
    auto& last = last_arrival_[{from, to}];
    last = std::max(
      last, now_ + 1 + static_cast<std::int64_t>(random_.below(random_.below(10) == 0 ? 900 : 60)));
    bool lost_with_its_sender = random_.below(3) == 0;
    auto sent = now_;
    at(last - now_, [this, from, to, sent, lost_with_its_sender, what = std::move(what)] {
      if (!members_[from].alive && lost_with_its_sender && crashed_at_[from] - sent < 50)
        return;
      if (members_[to].alive)
        what(members_[to].machine, members_[to]);
    });
  }

  void perform(std::size_t who, const protocol::actions& actions) {
    auto& m = members_[who];
    for (const auto& action : actions) {
      bool ends = std::holds_alternative<protocol::commit>(action)
                  || std::holds_alternative<protocol::fail>(action);
      if (ends && (m.decided || m.failed))
        violation_ = "a member ended twice";
      std::visit([&](const auto& a) { act(who, m, a); }, action);
    }
  }

  template <class F>
  void broadcast(std::size_t who, member_set to, F f) {
    to.for_each([&](std::size_t i) {
      post(who, i, [this, i, f](protocol& p, member&) { perform(i, f(p)); });
    });
  }
  member_set just(std::size_t i) { return members_of({i}); }

  void act(std::size_t who, member&, const protocol::send_propose& a) {
    broadcast(who, a.to, [who, a](protocol& p) { return p.on_propose(who, a.view, a.promises); });
  }
  void act(std::size_t who, member& m, const protocol::send_prepared& a) {
    if (!m.complete || m.view.number != a.view.number)
      violation_ = "a member prepared what it does not hold";
    prepared_[{a.view.number, m.view.contributors}].insert(who);
    broadcast(who, a.to,
              [who, a](protocol& p) { return p.on_prepared(who, a.view.number, a.view.result); });
  }
  void act(std::size_t who, member&, const protocol::send_suspect& a) {
    if (a.to == who)
      return; // received already
    broadcast(who, just(a.to), [this, who, a](protocol& p) {
      return p.on_suspect(who, a.view, a.member, a.reason, clock());
    });
  }
  void act(std::size_t who, member&, const protocol::send_commit& a) {
    broadcast(who, a.to, [who, a](protocol& p) { return p.on_commit(who, a.view); });
  }
  void act(std::size_t who, member&, const protocol::send_abort& a) {
    broadcast(who, a.to, [who, a](protocol& p) { return p.on_abort(who, a.reason); });
  }
  void act(std::size_t who, member&, const protocol::send_takeover& a) {
    broadcast(who, a.to, [who, a](protocol& p) { return p.on_takeover(who, a.number); });
  }
  void act(std::size_t who, member&, const protocol::send_promise& a) {
    auto promise = a.promise;
    broadcast(who, just(a.to), [who, promise](protocol& p) { return p.on_promise(who, promise); });
  }
  void act(std::size_t who, member&, const protocol::compare_results&) {
    violation_ = "member " + std::to_string(who) + " holds another result than the others";
  }
  void act(std::size_t who, member& m, const protocol::await_repair&) {
    if (faults_.faulty_max == 0 || m.complete)
      violation_ = "member " + std::to_string(who) + " holds another result than was adopted";
    else
      try_to_repair(who, m.view.number);
  }

  /// The members that hold the adopted result send it.
  void try_to_repair(std::size_t who, std::uint32_t number) {
    at(1 + static_cast<std::int64_t>(random_.below(300)), [this, who, number] {
      auto& m = members_[who];
      if (!m.alive || m.machine.ended() || m.view.number != number || m.complete)
        return;
      bool possible = false;
      m.machine.holders().for_each([&](std::size_t i) {
        const auto& holder = members_[i];
        possible = possible || (holder.alive && holder.complete && holder.view == m.view);
      });
      if (!possible)
        return try_to_repair(who, number);
      m.complete = true;
      m.completed = now_;
      perform(who, m.machine.on_result_complete(number, m.view.result));
    });
  }

  void act(std::size_t, member& m, const protocol::enter_view& a) {
    if (m.decided || m.failed)
      violation_ = "a member went on after its end";
    if (a.view.number <= m.view.number)
      violation_ = "view numbers went back";
    m.complete = m.complete && a.view.contributors == m.view.contributors;
    m.view = a.view;
    m.since = m.completed = now_;
  }
  void act(std::size_t who, member& m, const protocol::commit& a) {
    if (!m.complete || m.view.contributors != a.view.contributors)
      violation_ = "a member committed a result that it does not hold";
    prepared_[{a.view.number, a.view.contributors}].insert(who); // alone, no messages were needed
    m.decided = a.view;
    m.ended_at = now_;
  }
  void act(std::size_t, member& m, const protocol::fail& a) {
    m.failed = a.why;
    m.ended_at = now_;
    if (a.why.code == ec::none)
      violation_ = "a failure without a reason";
  }

  bool prepared_by_quorum(const round_view& view) const {
    auto found = prepared_.find({view.number, view.contributors});
    return found != prepared_.end() && is_quorum(view.participant_set(), members_.size())
           && found->second.contains(view.participant_set());
  }

  random_source random_;
  round_plan plan_;
  faults faults_;
  std::vector<member> members_;
  std::map<std::pair<std::int64_t, std::uint64_t>, std::function<void()>> events_;
  std::map<std::pair<std::size_t, std::size_t>, std::int64_t> last_arrival_;
  std::map<std::size_t, std::int64_t> crashed_at_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, member_set>
    prepared_; // (view, contributors) → by whom
  std::int64_t now_ = 0;
  std::uint64_t sequence_ = 0;
  std::string violation_;
};

struct tally {
  std::size_t rounds = 0;
  std::size_t all_committed = 0; // of those alive at the end
  std::size_t some_committed = 0;
  std::string example; // of a round that not all survivors committed
};

tally run_many(std::uint64_t seeds, std::size_t members_min, std::size_t members_max, faults f) {
  tally out;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    auto n = members_min + seed % (members_max - members_min + 1);
    round_model model{seed, n, f};
    model.run();
    EXPECT_EQ(model.violation(), "")
      << "seed " << seed << ", " << n << " members: " << model.describe();
    EXPECT_TRUE(model.all_ended())
      << "seed " << seed << ", " << n << " members: " << model.describe();
    if (testing::Test::HasFailure())
      return out;
    ++out.rounds;
    std::size_t committed = 0;
    std::size_t alive = 0;
    for (const auto& m : model.members()) {
      alive += m.alive ? 1 : 0;
      committed += m.alive && m.decided ? 1 : 0;
    }
    out.all_committed += committed == alive ? 1 : 0;
    if (committed != alive && out.example.empty())
      out.example = "seed " + std::to_string(seed) + ": " + model.describe();
    out.some_committed += committed > 0 ? 1 : 0;
  }
  return out;
}

TEST(RoundModel, WithoutFaultsAllMembersCommitTheWholeGroup) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    auto n = 1 + seed % 8;
    round_model model{seed, n, {}};
    model.run();
    ASSERT_EQ(model.violation(), "") << "seed " << seed;
    for (const auto& m : model.members()) {
      ASSERT_TRUE(m.decided) << "seed " << seed << ": " << model.describe();
      ASSERT_EQ(m.decided->contributor_set(), member_set::first(n)) << "seed " << seed;
    }
  }
}

TEST(RoundModel, OneCrashOfThreeOrMoreLeavesAResultToAllSurvivors) {
  for (bool silent : {false, true}) {
    faults f{.crashes_max = 1, .silent = silent};
    auto seen = run_many(3'000, 3, 8, f);
    EXPECT_EQ(seen.all_committed, seen.rounds) << "silent " << silent << ", " << seen.example;
  }
}

/// With four members the loss of one leaves no more than a quorum.
TEST(RoundModel, OneCrashLeavesAResultToAllSurvivorsAlsoIfChangesAreProven) {
  for (bool silent : {false, true}) {
    faults f{.crashes_max = 1, .silent = silent, .faulty_max = 1};
    auto seen = run_many(3'000, 4, 9, f);
    EXPECT_EQ(seen.all_committed, seen.rounds) << "silent " << silent << ", " << seen.example;
  }
}

TEST(RoundModel, TwoCrashesOfSixOrMoreLeaveAResultAlsoIfChangesAreProven) {
  faults f{.crashes_max = 2, .faulty_max = 1};
  auto seen = run_many(3'000, 6, 9, f);
  EXPECT_EQ(seen.all_committed, seen.rounds) << seen.example;
}

TEST(RoundModel, ManyCrashesNeverSplitARound) {
  for (bool silent : {false, true}) {
    faults f{.crashes_max = 5, .silent = silent};
    auto seen = run_many(3'000, 2, 8, f);
    EXPECT_GT(seen.some_committed, seen.rounds / 2);
  }
}

TEST(RoundModel, WrongSuspicionsNeverSplitARound) {
  faults f{.suspicions_max = 10};
  auto seen = run_many(4'000, 2, 8, f);
  EXPECT_GT(seen.some_committed, seen.rounds / 2);
}

TEST(RoundModel, EverythingAtOnceNeverSplitsARound) {
  faults f{.crashes_max = 3, .suspicions_max = 8, .give_ups_max = 2};
  run_many(6'000, 2, 8, f);
  f.silent = true;
  run_many(4'000, 2, 8, f);
  f.faulty_max = 1;
  run_many(4'000, 4, 8, f);
  f.faulty_max = 2;
  run_many(2'000, 7, 10, f);
}

} // namespace
} // namespace waggle
