// Made-up identities, and in every second swarm a member, lie at random moments, while honest peers
// come and go. More with WAGGLE_LIAR_SEEDS.

#include "runtime/core/random.hpp"
#include "tests/support/liar.hpp"
#include "tests/support/seeds.hpp"
#include "tests/swarm/training_swarm.hpp"

namespace waggle::testing {
namespace {

/// Five honest trainers and fewer liars.
class swarm_with_liars : trainers {
public:
  explicit swarm_with_liars(std::uint64_t seed) : trainers(seed), random_(seed) {}

  /// What the liars achieved; empty: nothing.
  std::string harm() {
    for (index i = 0; i < 5; ++i)
      honest_.push_back(join(endless(i + 1)));
    if (!sim.run_until([&] { return together(honest_); }, 15s))
      return "the honest peers did not begin";
    sim.run_for(3s);
    branch_ = status_of(0).past.branch;
    auto quiet = epochs_in(5s);
    for (std::uint64_t n = 1 + random_.next() % 3; n > 0; --n)
      liars_.emplace_back(sim, honest_);
    if (random_.next() % 2 == 0) {
      auto member = honest_.back();
      honest_.pop_back();
      liars_.emplace_back(sim, member);
    }
    sim.run_for(1s);
    std::uint64_t under_attack = 0;
    for (int turn = 0; turn < 10; ++turn) {
      lie();
      if (turn == 3)
        joined_ = add(endless(20), everybody());
      if (turn == 6)
        sim.crash(honest_[1 + random_.next() % 2], random_.next() % 2 == 0);
      under_attack += epochs_in(2s);
      if (auto found = poisoned(); !found.empty())
        return found;
    }
    honest_.push_back(joined_);
    std::erase_if(honest_, [this](index i) { return !sim[i].alive; });
    for (auto& liar : liars_)
      liar.stop();
    if (!sim.run_until([&] { return trains_together(); }, 20s))
      return "the honest peers do not train together:" + summary();
    expect_rounds_kept_the_contract(sim);
    // One of five has died and another one lies, so three fifths are left. The loss of a silent
    // member, and each false claim of samples, cost some seconds.
    if (3 * under_attack < 4 * quiet)
      return std::to_string(under_attack) + " epochs in 20 s, " + std::to_string(quiet)
             + " in 5 s before";
    return poisoned();
  }

private:
  std::vector<index> everybody() {
    auto all = sim.living();
    std::rotate(all.begin(), all.begin() + static_cast<long>(random_.next() % all.size()),
                all.end());
    return all;
  }
  std::uint64_t epochs_in(std::chrono::nanoseconds time) {
    auto before = status_of(0).epoch.value();
    sim.run_for(time);
    return status_of(0).epoch.value() - before;
  }

  void lie() {
    auto& liar = liars_[random_.next() % liars_.size()];
    auto now = status_of(0).epoch.value();
    const std::uint64_t epochs[] = {now, now + 1, now + 2, now + 1'000'000, ~std::uint64_t{0}};
    epoch_id epoch{epochs[random_.next() % 5]};
    false_claim claim{.branch = random_.next() % 2 == 0 ? branch_ : sha256("made up"),
                      .epoch = epoch,
                      .samples = random_.next() % 1'000,
                      .ready = random_.next() % 4 != 0,
                      .parameters = random_.next() % 2 == 0 ? digest{} : poisoned_parameters()};
    history theirs{claim.branch, {}, {}, 1'000'000};
    switch (random_.next() % 6) {
      case 0:
        return liar.claim(claim);
      case 1:
        return liar.keep_claiming(claim);
      case 2:
        liar.give(epoch, poisoned_image(theirs, epoch));
        return liar.keep_claiming(claim);
      case 3:
        liar.give(epoch, poisoned_image(theirs, epoch));
        liar.admit_at(epoch);
        return liar.keep_claiming(claim);
      case 4:
        return liar.admit_never();
      default:
        return liar.claim_samples(100'000, 1e8);
    }
  }

  std::string poisoned() {
    for (auto i : honest_)
      if (sim[i].alive && status_of(i).parameters == poisoned_parameters())
        return "peer " + std::to_string(i) + " holds the liars' model";
    return {};
  }
  bool trains_together() {
    auto first = status_of(honest_.front());
    return std::all_of(honest_.begin(), honest_.end(), [&](index i) {
      auto s = status_of(i);
      auto ahead = s.epoch.value() + 1 - std::min(s.epoch.value() + 1, first.epoch.value());
      return s.past.branch == branch_ && s.group_size >= honest_.size() && ahead <= 2
             && s.epoch.value() + 1 >= first.epoch.value();
    });
  }
  std::string summary() {
    std::string text;
    for (auto i : honest_) {
      auto s = status_of(i);
      text += "\n  " + std::to_string(i) + " " + std::string{to_string(s.phase)} + " epoch "
              + to_string(s.epoch) + " history " + short_name(s.past.branch) + " group of "
              + std::to_string(s.group_size) + " last " + s.last_outcome;
    }
    return text;
  }

  random_source random_;
  digest branch_;
  std::vector<index> honest_;
  std::vector<liar> liars_;
  index joined_ = 0;
};

TEST(RandomLies, HarmNobody) {
  auto only = number_in("WAGGLE_LIAR_SEED", 0);
  auto first = only > 0 ? only : 1;
  auto last = only > 0 ? only : number_in("WAGGLE_LIAR_SEEDS", 12);
  for (auto seed = first; seed <= last; ++seed)
    EXPECT_EQ(swarm_with_liars{seed}.harm(), "") << "seed " << seed;
}

} // namespace
} // namespace waggle::testing
