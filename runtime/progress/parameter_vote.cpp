#include "runtime/progress/parameter_vote.hpp"

#include <algorithm>
#include <utility>

#include "runtime/core/check.hpp"

namespace waggle {

namespace {

/// Peers that hold the same parameters, or nearly.
struct holders {
  digest first; // in ascending order, of what they hold
  parameter_sketch sketch;
  std::size_t count = 1;
};

} // namespace

const swarm_progress::peer* parameter_vote::rounds_unlike(const peers& voters) const {
  auto known = sketch_;
  for (const auto* peer : voters) {
    if (peer->sketch.rounds_unlike(known))
      return peer;
    if (known.rounding == 0)
      known = peer->sketch;
  }
  return nullptr;
}

parameter_vote::outcome parameter_vote::compare(const peers& voters) {
  WAGGLE_CHECK(!parameters_.is_zero(), "nothing to compare");
  outcome out;
  bool rounds = rounds_unlike(voters) != nullptr;
  auto same = [&](const holders& a, const digest& parameters, const parameter_sketch& sketch) {
    return a.first == parameters
           || (rounds && a.sketch.rounding != 0 && sketch.rounding != 0
               && a.sketch.distance_to(sketch) <= rounding_max);
  };
  std::vector<holders> all{{parameters_, sketch_}}; // ours first
  std::size_t compared = 0;
  std::uint32_t others = 0;
  for (const auto* peer : voters) {
    if (peer->epoch != epoch_ || !peer->claim.ready || peer->parameters.is_zero())
      continue; // has not reported yet
    ++compared;
    if (!same({parameters_, sketch_}, peer->parameters, peer->sketch) && others++ == 0)
      out.first = peer->who.id;
    auto found = std::ranges::find_if(
      all, [&](const holders& h) { return same(h, peer->parameters, peer->sketch); });
    if (found == all.end()) {
      all.push_back({peer->parameters, peer->sketch});
    } else {
      ++found->count;
      found->first = std::min(found->first, peer->parameters);
    }
  }
  out.changed = std::exchange(differing_, others) != others;
  // Reports of one epoch arrive one after another: a difference may show after the first of them.
  if (others > 0 && std::exchange(differed_, epoch_) != epoch_)
    out.found = "differing";
  else if (compared > 0 && std::exchange(compared_, epoch_) != epoch_)
    out.found = "equal";
  auto of_use = [&](const holders& h) { return h.first != not_finite_; };
  auto most = std::ranges::max_element(all, [&](const holders& a, const holders& b) {
    if (of_use(a) != of_use(b))
      return of_use(b);
    return a.count != b.count ? a.count < b.count : b.first < a.first;
  });
  // Until all have reported, only what more than half of them hold decides: the first report may be
  // that of a liar.
  bool decided =
    compared == voters.size() || 2 * most->count > voters.size() + 1 || parameters_ == not_finite_;
  out.minority = most != all.begin() && decided;
  return out;
}

} // namespace waggle
