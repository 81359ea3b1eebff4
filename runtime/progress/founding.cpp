#include "runtime/progress/founding.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/progress/unanswered.hpp"

namespace waggle {

namespace {

/// How long one of the connected peers may take to begin, if none of them trains yet.
constexpr milliseconds alone_among_nodes{3'000};

founding wait_for(std::string what) {
  return {false, std::move(what)};
}

} // namespace

founding decide_founding(const founding_situation& now) {
  const founding go{true, {}};
  const auto heard = now.waited - now.unheard; // the others could report
  if (now.lost_group) {
    if (!now.continue_on_split)
      return wait_for("most of the group, which cannot be reached (on-split is pause)");
    return now.waited < now.split_grace ? wait_for("most of the group, which cannot be reached")
                                        : go;
  }
  if (now.client && now.connected && now.join_timeout > milliseconds{0}) {
    if (now.reducer_connected) // it enters the group that needs it
      return heard >= now.settle_time ? go : wait_for("the others to report their progress");
    if (now.waited < now.join_timeout)
      return wait_for("a peer that others can reach: clients average through a trainer without "
                      "--client-mode, or a waggle node that reduces for them");
    return {true, "no peer that others can reach trains or reduces for clients: training alone"};
  }
  if (now.join_timeout == milliseconds{0} || !now.addresses_known) // the run's first peer
    return !now.connected || heard >= now.settle_time
             ? go
             : wait_for("the peers that were reached to report whether they train");
  if (now.trainers_seen)
    return heard >= now.settle_time ? go
                                    : wait_for("the others that begin to report their progress");
  if (now.connected)
    return heard >= std::min(now.join_timeout, alone_among_nodes)
             ? go
             : wait_for("a peer that trains: those reached do not");
  if (now.waited >= now.join_timeout && (now.has_work || now.may_start_alone))
    return {true, "no peer of the run was reached within "
                    + std::to_string(std::llrint(seconds_of(now.join_timeout)))
                    + " s: training alone"};
  return wait_for(std::string{nobody_answers});
}

} // namespace waggle
