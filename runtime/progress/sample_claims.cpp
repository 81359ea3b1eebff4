#include "runtime/progress/sample_claims.hpp"

#include <algorithm>
#include <utility>

namespace waggle {

namespace {

constexpr double slack = 2; // a member may be so many times faster than it was
/// The speed that a member claims leaves out its waits for others.
constexpr double waits = 10;
constexpr double smoothing = 0.2;

} // namespace

void sample_claims::observe(const peer_id& peer, std::uint64_t samples) {
  if (claims_.size() >= peers_max && !claims_.contains(peer))
    return;
  if (samples == 0) // a peer reports none during its round, and after a restart
    return;
  auto& claim = claims_[peer];
  claim = std::max(claim, std::min(samples, target_));
}

std::uint64_t sample_claims::counted(const peer_id& peer, std::uint64_t samples,
                                     steady_time now) const {
  if (suspects_.holds(peer, now))
    return 0;
  auto claim = std::min(samples, target_);
  auto known = delivered_.find(peer);
  if (known == delivered_.end())
    return claim;
  auto plausible = static_cast<double>(known->second.most)
                   + slack * known->second.speed * seconds_of(now - began_);
  return plausible >= static_cast<double>(claim) ? claim : static_cast<std::uint64_t>(plausible);
}

double sample_claims::speed(const peer_id& peer, double claimed, steady_time now) const {
  if (suspects_.holds(peer, now))
    return 0;
  auto known = delivered_.find(peer);
  bool seen = known != delivered_.end() && known->second.speed > 0;
  return seen ? std::min(claimed, waits * known->second.speed) : claimed;
}

void sample_claims::begin_epoch(steady_time now) {
  due_ = std::exchange(claims_, {});
  due_seconds_ = seconds_of(now - began_);
  began_ = now;
}

sample_claims::shortfall sample_claims::end_round(const std::vector<peer_id>& participants,
                                                  double delivered, std::uint64_t own,
                                                  steady_time now) {
  shortfall out;
  std::vector<std::pair<std::uint64_t, peer_id>> claims;
  auto claimed = static_cast<double>(own);
  for (const auto& [peer, samples] : std::exchange(due_, {})) {
    // Claims that did not count are no reason to doubt others.
    if (samples == 0 || suspects_.holds(peer, now)
        || std::find(participants.begin(), participants.end(), peer) == participants.end())
      continue;
    claims.emplace_back(samples, peer);
    claimed += static_cast<double>(samples);
  }
  auto missing = claimed - delivered;
  if (missing < 1) {
    for (const auto& [samples, peer] : claims) {
      if (delivered_.size() >= peers_max && !delivered_.contains(peer))
        delivered_.erase(delivered_.begin());
      auto& record = delivered_[peer];
      record.most = std::max(record.most, samples);
      if (due_seconds_ > 0) {
        auto speed = static_cast<double>(samples) / due_seconds_;
        record.speed += (record.speed == 0 ? 1 : smoothing) * (speed - record.speed);
      }
    }
    return out;
  }
  out.missing = static_cast<std::uint64_t>(missing);
  std::sort(claims.rbegin(), claims.rend());
  for (const auto& [samples, peer] : claims) {
    auto known = delivered_.find(peer);
    if (missing < 1)
      break;
    if (known != delivered_.end() && samples <= known->second.most)
      continue;
    missing -= static_cast<double>(samples);
    (void)suspects_.add(peer, now);
    out.suspects.push_back(peer);
  }
  return out;
}

} // namespace waggle
