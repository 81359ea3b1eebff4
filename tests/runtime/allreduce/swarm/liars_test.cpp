// One member lies: it does what the protocol says, except for one thing that it says differently to
// the others. However it lies, no two members finish with different bytes, the round ends, and the
// members that do not lie have a result.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/crypto/digest.hpp"
#include "tests/runtime/allreduce/swarm/liar.hpp"
#include "tests/support/fake_signatures.hpp"

namespace waggle::testing {
namespace {

/// Each member is sent other bytes, and is told that the round is decided for what it holds.
class forged_commits final : public liar {
public:
  explicit forged_commits(std::size_t who)
    : liar(who, changing([](std::size_t to, wire::event& what, payload& body) {
             if (is_part(what, wire::part_kind::result))
               bend(body, std::byte(1 + to));
           })) {}

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
};

struct way {
  const char* name;
  speech say; // null: see forged_commits
  [[nodiscard]] std::unique_ptr<saboteur> make(std::size_t who) const {
    if (!say)
      return std::make_unique<forged_commits>(who);
    return std::make_unique<liar>(who, say);
  }
};

/// Sends some members other results than the rest.
template <class Which>
speech other_results(Which which) {
  return changing([which](std::size_t to, wire::event& what, payload& body) {
    if (is_part(what, wire::part_kind::result) && which(to))
      bend(body);
  });
}

bool is_odd(std::size_t to) {
  return to % 2 == 1;
}

const way ways[] = {
  {"OtherResultsForSome", other_results(is_odd)},
  {"OtherResultsForOne", other_results([](std::size_t to) { return to == 2; })},
  {"OtherResultsForEach", changing([](std::size_t to, wire::event& what, payload& body) {
     if (is_part(what, wire::part_kind::result))
       bend(body, std::byte(1 + to));
   })},
  // Its results are right; it reports that it holds something else.
  {"AnotherDigest", changing([](std::size_t to, wire::event& what, payload&) {
     if (auto* prepared = std::get_if<wire::round_prepared>(&what); prepared && is_odd(to))
       prepared->result = sha256("nothing");
   })},
  // Sends different results, and lists what nobody holds.
  {"AnotherList", changing([](std::size_t to, wire::event& what, payload& body) {
     if (is_odd(to) && is_part(what, wire::part_kind::result))
       bend(body);
     if (auto* list = std::get_if<wire::round_digests>(&what))
       for (auto& group : list->groups)
         group = sha256(group.raw());
   })},
  // Declares another weight to every second reducer.
  {"AnotherWeight", changing([](std::size_t to, wire::event& what, payload&) {
     if (is_part(what, wire::part_kind::contribution) && is_odd(to)) {
       auto& weight = std::get<wire::part>(what).weight;
       weight = 2 * weight + 1;
     }
   })},
  // Claims that it summed with other weights.
  {"InventedWeights", changing([](std::size_t, wire::event& what, payload&) {
     if (!is_part(what, wire::part_kind::result))
       return;
     auto& part = std::get<wire::part>(what);
     part.weight = 0;
     for (auto& weight : part.weights)
       part.weight += weight += 1;
   })},
  {"AnotherShare", changing([](std::size_t to, wire::event& what, payload&) {
     if (auto* share = std::get_if<wire::round_key_share>(&what); share && is_odd(to))
       share->share = sha256("a share");
   })},
  {"ForgedCommits", nullptr},
  // What it reports is right; its signature is not. It helps nobody afterwards.
  {"BadSignatures",
   [](std::size_t, wire::event& what, payload&) {
     if (auto* prepared = std::get_if<wire::round_prepared>(&what))
       prepared->by.bytes[5] ^= std::byte{1};
     return !std::holds_alternative<wire::round_commit>(what)
            && !std::holds_alternative<wire::round_promise>(what);
   }},
};

class Liars : public ::testing::TestWithParam<way> {};

std::string violation(std::uint64_t seed, bool leader_lies) {
  auto scene = random_scenario(seed);
  scene.faults.clear();
  scene.plan.reduce_by.faulty_max = 1; // so that one accuser is not enough
  send_nothing_back(scene);
  if (seed % 2 == 0)
    scene.config.keyless_bytes_max = 0;
  auto who = liar_of(seed, scene, leader_lies);
  return violation_by(std::move(scene), who, *Liars::GetParam().make(who));
}

TEST_P(Liars, NeverMixOrStopARound) {
  for (std::uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed)
    EXPECT_EQ(violation(seed, false), "") << "seed " << seed;
}

/// The leader decides who is left out, so if it lies, members that do not may fail.
TEST_P(Liars, ThatLeadNeverMixARound) {
  for (std::uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed)
    EXPECT_THAT(violation(seed, true),
                ::testing::AnyOf("", ::testing::HasSubstr("did nothing wrong")))
      << "seed " << seed;
}

INSTANTIATE_TEST_SUITE_P(Each, Liars, ::testing::ValuesIn(ways),
                         [](const auto& info) { return info.param.name; });

/// Whoever leads dies, so the others ask for promises. The liar says that the round was decided,
/// for what nobody holds.
TEST(ALiarWhoForgesPromises, StopsNoTakeover) {
  auto forged = changing([](std::size_t, wire::event& what, payload&) {
    auto* promise = std::get_if<wire::round_promise>(&what);
    if (promise == nullptr || !promise->knows_view)
      return;
    promise->prepared = promise->committed = true;
    if (promise->view.result.is_zero())
      promise->view.result = sha256("nothing");
    promise->proof.assign(promise->view.participant_set().size(), signature{});
  });
  for (std::uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed) {
    auto scene = random_scenario(seed);
    auto who = liar_of(seed, scene, false);
    scene.plan.reduce_by.faulty_max = 1;
    scene.faults.resize(1);
    scene.faults[0] = fault{};
    scene.faults[0].when = moment::prepared;
    scene.faults[0].count = seed % (2 * scene.plan.members.size());
    liar planted{who, forged};
    // Who says that it holds what it does not hold is lost to a time limit of its own.
    EXPECT_THAT(violation_by(std::move(scene), who, planted),
                ::testing::AnyOf("", ::testing::HasSubstr("s from the last fault on")))
      << "seed " << seed;
  }
}

} // namespace
} // namespace waggle::testing
