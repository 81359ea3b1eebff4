#include "tests/runtime/allreduce/swarm/saboteurs.hpp"

#include <map>
#include <set>

#include "runtime/averaging/part_table.hpp"
#include "tests/support/fake_signatures.hpp"

namespace waggle::testing {

namespace {

template <class Word>
Word* get(wire::event& what) {
  return std::get_if<Word>(&what);
}

/// Commits as soon as most participants have prepared, instead of all: forges the missing messages.
class commits_by_majority final : public saboteur {
public:
  bool on_arrival(round_swarm& swarm, std::size_t to, std::size_t from,
                  inbound_event& event) override {
    const auto* word = get<wire::round_prepared>(event.what);
    if (word == nullptr)
      return true;
    auto& heard = received_[{to, word->view}];
    heard.insert(from);
    auto members = swarm.plan().members.size();
    if (2 * heard.size() <= members || !invented_.insert({to, word->view}).second)
      return true;
    auto view = swarm.promise_of(to).view;
    view.result = word->result;
    for (std::size_t i = 0; i < members && view.number == word->view; ++i)
      if (i != to && !heard.contains(i))
        swarm.inject(i, to, prepared_by(i, swarm.plan(), view));
    return true;
  }

private:
  std::map<std::pair<std::size_t, std::uint32_t>, member_set> received_;
  std::set<std::pair<std::size_t, std::uint32_t>> invented_;
};

/// Answers a takeover and forgets its promise at once: prepares below it later.
class breaks_promises final : public saboteur {
public:
  bool on_arrival(round_swarm& swarm, std::size_t to, std::size_t from,
                  inbound_event& event) override {
    const auto* word = get<wire::round_takeover>(event.what);
    if (word == nullptr || !swarm.is_running(to))
      return true;
    auto mine = swarm.promise_of(to);
    mine.promised = word->number;
    swarm.inject(to, from, mine);
    return false;
  }
};

/// A new leader ignores what others have prepared or decided.
class ignores_what_is_prepared final : public saboteur {
public:
  bool on_send(round_swarm&, std::size_t, std::size_t, wire::event& what, payload&) override {
    if (auto* word = get<wire::round_promise>(what))
      word->prepared = word->committed = word->view.adopted = false;
    return true;
  }
};

/// A view's leader that has prepared changes the contributors without asking for promises: its
/// requests are answered at once in the others' name.
class asks_for_no_promises final : public saboteur {
public:
  bool on_send(round_swarm& swarm, std::size_t from, std::size_t to, wire::event& what,
               payload&) override {
    if (const auto* propose = get<wire::round_propose>(what))
      leader_ = leader_of(propose->view.number, swarm.plan().members.size());
    const auto* word = get<wire::round_takeover>(what);
    if (word == nullptr || from != leader_)
      return true;
    swarm.inject(to, from,
                 wire::round_promise{{word->number, true, first_view(swarm.plan()), false, false},
                                     word->round});
    return false;
  }

private:
  std::size_t leader_ = 0;
};

/// A part summed over the last view's contributors is accepted for this view's.
class takes_old_results final : public saboteur {
public:
  bool on_arrival(round_swarm& swarm, std::size_t to, std::size_t from,
                  inbound_event& event) override {
    auto* part = get<wire::part>(event.what);
    if (part == nullptr || part->kind != wire::part_kind::result || !swarm.is_running(to))
      return true;
    auto now = swarm.promise_of(to).view;
    if (part->contributors == now.contributors || part->view > now.number
        || part_table{swarm.plan()}.owner(part->index, now) != from)
      return true;
    part->contributors = now.contributors;
    part->view = now.number;
    part->weight = 0;
    part->weights.clear();
    now.contributor_set().for_each([&](std::size_t i) {
      part->weights.push_back(swarm.scene().weights[i]);
      part->weight += swarm.scene().weights[i];
    });
    return true;
  }
};

/// A member that has committed answers a takeover as if it had not.
class forgets_its_commit final : public saboteur {
public:
  bool on_send(round_swarm& swarm, std::size_t from, std::size_t, wire::event& what,
               payload&) override {
    if (auto* word = get<wire::round_promise>(what); word != nullptr && word->committed) {
      word->view = first_view(swarm.plan());
      word->prepared = word->committed = false;
    }
    // Nor does it send its commit to members that ask otherwise.
    const auto* commit = get<wire::round_commit>(what);
    return commit == nullptr || leader_of(commit->view.number, swarm.plan().members.size()) == from;
  }
};

/// A reducer sends different bytes to some members.
class sends_unequal_results final : public saboteur {
public:
  bool on_send(round_swarm&, std::size_t, std::size_t to, wire::event& what,
               payload& body) override {
    const auto* part = get<wire::part>(what);
    if (part == nullptr || part->kind != wire::part_kind::result || to % 2 == 0)
      return true;
    auto bent = std::make_shared<std::vector<std::byte>>(body.view().begin(), body.view().end());
    bent->front() ^= std::byte{1}; // the last bit of a float32, a code of the others
    body = payload_of(std::shared_ptr<const std::vector<std::byte>>{bent});
    return true;
  }
};

/// Results are written over the caller's own vector as they arrive.
class averages_in_place final : public saboteur {
public:
  bool on_arrival(round_swarm& swarm, std::size_t to, std::size_t, inbound_event& event) override {
    const auto* part = get<wire::part>(event.what);
    if (part != nullptr && part->kind == wire::part_kind::result)
      swarm.values_of(to)[part->offset] += 1;
    return true;
  }
};

/// One member in four never checks its clock.
class does_not_look_at_its_clock final : public saboteur {
public:
  bool ticks(std::size_t member) override { return member % 4 != 1; }
};

/// Reports a member that has done nothing wrong.
class slanders final : public saboteur {
public:
  bool on_arrival(round_swarm& swarm, std::size_t to, std::size_t from,
                  inbound_event& event) override {
    const auto* part = get<wire::part>(event.what);
    auto members = swarm.plan().members.size();
    if (part == nullptr || part->kind != wire::part_kind::result || to != members - 1 || from == 0)
      return true;
    swarm.inject(
      to, 0,
      wire::round_suspect{part->round, 0, static_cast<std::uint32_t>(members - 2), ec::stalled});
    return true;
  }
};

/// Returns a part's bytes to the sender's window twice.
class releases_twice final : public saboteur {
public:
  bool on_arrival(round_swarm&, std::size_t, std::size_t, inbound_event& event) override {
    const auto* part = get<wire::part>(event.what);
    if (part != nullptr && part->index % 3 == 0)
      event.release();
    return true;
  }
};

/// Loses a part without returning its bytes to the window.
class forgets_to_release final : public saboteur {
public:
  bool on_arrival(round_swarm&, std::size_t, std::size_t, inbound_event& event) override {
    const auto* part = get<wire::part>(event.what);
    if (part != nullptr && part->index % 5 == 1)
      event.via = nullptr;
    return true;
  }
};

template <class Bug>
planted_bug bug(std::string name, std::string betrayed_by) {
  return {std::move(name), [] { return std::make_unique<Bug>(); }, std::move(betrayed_by)};
}

} // namespace

std::vector<planted_bug> all_planted_bugs() {
  return {
    bug<commits_by_majority>("CommitsByMajority", "have prepared"),
    bug<breaks_promises>("BreaksPromises", "have prepared"),
    bug<ignores_what_is_prepared>("IgnoresWhatIsPrepared", "a mixed round"),
    bug<asks_for_no_promises>("AsksForNoPromises", "a mixed round"),
    bug<forgets_its_commit>("ForgetsItsCommit", "a mixed round"),
    bug<averages_in_place>("AveragesInPlace", "other values than it gave"),
    bug<does_not_look_at_its_clock>("DoesNotLookAtItsClock", "hangs"),
    bug<slanders>("Slanders", "did nothing wrong"),
    bug<releases_twice>("ReleasesTwice", "released"),
    bug<forgets_to_release>("ForgetsToRelease", "released"),
  };
}

std::vector<planted_bug> bugs_that_digests_reveal() {
  return {
    bug<takes_old_results>("TakesOldResults", "two members finished with different"),
    bug<sends_unequal_results>("SendsUnequalResults", "two members finished with different"),
  };
}

} // namespace waggle::testing
