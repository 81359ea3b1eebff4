#include "runtime/progress/parameter_vote.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "runtime/core/check.hpp"

namespace waggle {

parameter_vote::outcome
parameter_vote::compare(const std::vector<const swarm_progress::peer*>& voters) {
  WAGGLE_CHECK(!parameters_.is_zero(), "nothing to compare");
  outcome out;
  std::map<digest, std::size_t> holders{{parameters_, 1}};
  std::size_t compared = 0;
  std::uint32_t others = 0;
  for (const auto* peer : voters) {
    if (peer->epoch != epoch_ || !peer->claim.ready || peer->parameters.is_zero())
      continue; // has not reported yet
    ++holders[peer->parameters];
    ++compared;
    if (peer->parameters != parameters_ && others++ == 0)
      out.first = peer->who.id;
  }
  out.changed = std::exchange(differing_, others) != others;
  // Reports of one epoch arrive one after another: a difference may show after the first of them.
  if (others > 0 && std::exchange(differed_, epoch_) != epoch_)
    out.found = "differing";
  else if (compared > 0 && std::exchange(compared_, epoch_) != epoch_)
    out.found = "equal";
  if (holders.size() > 1)
    holders.erase(not_finite_);
  auto most = std::max_element(holders.begin(), holders.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second < b.second : b.first < a.first;
  });
  // Until all have reported, only what more than half of them hold decides: the first report may be
  // that of a liar.
  bool decided =
    compared == voters.size() || 2 * most->second > voters.size() + 1 || parameters_ == not_finite_;
  out.minority = most->first != parameters_ && decided;
  return out;
}

} // namespace waggle
