// One member lies: it does what the protocol says, except for one thing that it says differently to
// the others. However it lies, no two members finish with different bytes, the round ends, and the
// members that do not lie have a result.

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/crypto/digest.hpp"
#include "tests/runtime/allreduce/swarm/round_swarm.hpp"
#include "tests/support/fake_signatures.hpp"

namespace waggle::testing {
namespace {

/// Rounds of each way to lie; more with WAGGLE_LIAR_SEEDS.
std::uint64_t seeds() {
  const char* asked = std::getenv("WAGGLE_LIAR_SEEDS");
  return asked != nullptr ? std::strtoull(asked, nullptr, 10) : 150;
}

payload bent(const payload& body, std::byte by) {
  auto bytes = std::make_shared<std::vector<std::byte>>(body.view().begin(), body.view().end());
  if (bytes->empty())
    return body;
  bytes->back() ^= by; // of the exponent of a float32, or a code
  return payload_of(std::shared_ptr<const std::vector<std::byte>>{bytes});
}

/// Lies to every second member, unless it says otherwise.
class liar : public saboteur {
public:
  explicit liar(std::size_t who) : who_(who) {}

  bool on_send(round_swarm&, std::size_t from, std::size_t to, wire::event& what,
               payload& body) override {
    if (from == who_)
      lie(to, what, body);
    return true;
  }

protected:
  virtual void lie(std::size_t to, wire::event& what, payload& body) = 0;
  static bool is_result(const wire::event& what) {
    const auto* part = std::get_if<wire::part>(&what);
    return part != nullptr && part->kind == wire::part_kind::result;
  }

private:
  const std::size_t who_;
};

class other_results_for_some final : public liar {
  using liar::liar;
  void lie(std::size_t to, wire::event& what, payload& body) override {
    if (to % 2 == 1 && is_result(what))
      body = bent(body, std::byte{1});
  }
};

class other_results_for_one final : public liar {
  using liar::liar;
  void lie(std::size_t to, wire::event& what, payload& body) override {
    if (to == 2 && is_result(what))
      body = bent(body, std::byte{1});
  }
};

class other_results_for_each final : public liar {
  using liar::liar;
  void lie(std::size_t to, wire::event& what, payload& body) override {
    if (is_result(what))
      body = bent(body, std::byte(1 + to));
  }
};

/// Its results are right; it reports that it holds something else.
class another_digest final : public liar {
  using liar::liar;
  void lie(std::size_t to, wire::event& what, payload&) override {
    if (auto* prepared = std::get_if<wire::round_prepared>(&what);
        prepared != nullptr && to % 2 == 1)
      prepared->result = sha256("nothing");
  }
};

/// Sends different results, and lists what nobody holds.
class another_list final : public liar {
  using liar::liar;
  void lie(std::size_t to, wire::event& what, payload& body) override {
    if (to % 2 == 1 && is_result(what))
      body = bent(body, std::byte{1});
    if (auto* list = std::get_if<wire::round_digests>(&what))
      for (auto& group : list->groups)
        group = sha256(group.raw());
  }
};

/// Declares another weight to every second reducer.
class another_weight final : public liar {
  using liar::liar;
  void lie(std::size_t to, wire::event& what, payload&) override {
    if (auto* part = std::get_if<wire::part>(&what);
        part != nullptr && part->kind == wire::part_kind::contribution && to % 2 == 1)
      part->weight = 2 * part->weight + 1;
  }
};

/// Claims that it summed with other weights.
class invented_weights final : public liar {
  using liar::liar;
  void lie(std::size_t, wire::event& what, payload&) override {
    auto* part = std::get_if<wire::part>(&what);
    if (part == nullptr || part->kind != wire::part_kind::result)
      return;
    part->weight = 0;
    for (auto& weight : part->weights)
      part->weight += weight += 1;
  }
};

class another_share final : public liar {
  using liar::liar;
  void lie(std::size_t to, wire::event& what, payload&) override {
    if (auto* share = std::get_if<wire::round_key_share>(&what); share != nullptr && to % 2 == 1)
      share->share = sha256("a share");
  }
};

/// Each member is sent other bytes, and is told that the round is decided for what it holds.
class forged_commits final : public liar {
public:
  explicit forged_commits(std::size_t who) : liar(who), who_(who) {}

  bool on_arrival(round_swarm& swarm, std::size_t to, std::size_t from,
                  inbound_event& event) override {
    const auto* prepared = std::get_if<wire::round_prepared>(&event.what);
    if (to != who_ || prepared == nullptr)
      return true;
    auto view = swarm.promise_of(from).view;
    if (view.number != prepared->view)
      return true;
    view.result = prepared->result;
    // What it can sign itself, what it was sent, and nothing for the others.
    round_proof::signatures proof;
    view.participant_set().for_each([&](std::size_t member) {
      proof.push_back(member == who_   ? prepared_by(who_, swarm.plan(), view).by
                      : member == from ? prepared->by
                                       : signature{});
    });
    swarm.inject(who_, from, wire::round_commit{swarm.plan().id, view, proof});
    return true;
  }

private:
  void lie(std::size_t to, wire::event& what, payload& body) override {
    if (is_result(what))
      body = bent(body, std::byte(1 + to));
  }
  const std::size_t who_;
};

/// Says to whoever takes over that the round was decided, for what nobody holds.
class forged_promises final : public liar {
  using liar::liar;
  void lie(std::size_t, wire::event& what, payload&) override {
    if (auto* promise = std::get_if<wire::round_promise>(&what);
        promise != nullptr && promise->knows_view) {
      promise->prepared = promise->committed = true;
      if (promise->view.result.is_zero())
        promise->view.result = sha256("nothing");
      promise->proof.assign(promise->view.participant_set().size(), signature{});
    }
  }
};

/// What it reports is right; its signature is not. It helps nobody afterwards.
class bad_signatures final : public liar {
public:
  explicit bad_signatures(std::size_t who) : liar(who), who_(who) {}

  bool on_send(round_swarm& swarm, std::size_t from, std::size_t to, wire::event& what,
               payload& body) override {
    bool helps = std::holds_alternative<wire::round_commit>(what)
                 || std::holds_alternative<wire::round_promise>(what);
    return liar::on_send(swarm, from, to, what, body) && !(from == who_ && helps);
  }

private:
  const std::size_t who_;
  void lie(std::size_t, wire::event& what, payload&) override {
    if (auto* prepared = std::get_if<wire::round_prepared>(&what))
      prepared->by.bytes[5] ^= std::byte{1};
  }
};

struct way {
  const char* name;
  std::function<std::unique_ptr<saboteur>(std::size_t who)> make;
};

template <class Liar>
way way_of(const char* name) {
  return {name, [](std::size_t who) { return std::make_unique<Liar>(who); }};
}

class Liars : public ::testing::TestWithParam<way> {};

/// The first violation of a round in which `who` lies; whose lies nothing is promised.
std::string violation(std::uint64_t seed, bool leader_lies) {
  auto scene = random_scenario(seed);
  scene.faults.clear();
  scene.plan.reduce_by.faulty_max = 1; // so that one accuser is not enough
  if (seed % 2 == 0)
    scene.config.keyless_bytes_max = 0;
  auto members = scene.plan.members.size();
  auto who = leader_lies ? 0 : 1 + seed % (members - 1);
  auto planted = Liars::GetParam().make(who);
  round_swarm swarm{std::move(scene), planted.get()};
  if (std::getenv("WAGGLE_LIAR_JOURNAL") != nullptr)
    swarm.keep_journal();
  swarm.let_lie(who);
  swarm.run();
  if (swarm.violation().empty())
    return {};
  return "member " + std::to_string(who) + " lies: " + swarm.violation() + "\n" + swarm.describe()
         + "\n" + swarm.journal();
}

TEST_P(Liars, NeverMixOrStopARound) {
  for (std::uint64_t seed = 1; seed <= seeds() && !HasFailure(); ++seed)
    EXPECT_EQ(violation(seed, false), "") << "seed " << seed;
}

/// The leader decides who is left out, so if it lies, members that do not may fail.
TEST_P(Liars, ThatLeadNeverMixARound) {
  for (std::uint64_t seed = 1; seed <= seeds() && !HasFailure(); ++seed)
    EXPECT_THAT(violation(seed, true),
                ::testing::AnyOf("", ::testing::HasSubstr("did nothing wrong")))
      << "seed " << seed;
}

/// Whoever leads dies, so the others ask for promises.
TEST(ALiarWhoForgesPromises, StopsNoTakeover) {
  for (std::uint64_t seed = 1; seed <= seeds() && !HasFailure(); ++seed) {
    auto scene = random_scenario(seed);
    auto members = scene.plan.members.size();
    auto who = 1 + seed % (members - 1);
    scene.plan.reduce_by.faulty_max = 1;
    scene.faults.resize(1);
    scene.faults[0] = fault{};
    scene.faults[0].when = moment::prepared;
    scene.faults[0].count = seed % (2 * members);
    forged_promises planted{who};
    round_swarm swarm{std::move(scene), &planted};
    swarm.let_lie(who);
    swarm.run();
    // Who says that it holds what it does not hold is lost to a time limit of its own.
    EXPECT_THAT(swarm.violation(),
                ::testing::AnyOf("", ::testing::HasSubstr("s from the last fault on")))
      << "seed " << seed << "\n"
      << swarm.describe();
  }
}

INSTANTIATE_TEST_SUITE_P(Each, Liars,
                         ::testing::Values(way_of<other_results_for_some>("OtherResultsForSome"),
                                           way_of<other_results_for_one>("OtherResultsForOne"),
                                           way_of<other_results_for_each>("OtherResultsForEach"),
                                           way_of<another_digest>("AnotherDigest"),
                                           way_of<another_list>("AnotherList"),
                                           way_of<another_weight>("AnotherWeight"),
                                           way_of<invented_weights>("InventedWeights"),
                                           way_of<another_share>("AnotherShare"),
                                           way_of<forged_commits>("ForgedCommits"),
                                           way_of<bad_signatures>("BadSignatures")),
                         [](const auto& info) { return info.param.name; });

} // namespace
} // namespace waggle::testing
