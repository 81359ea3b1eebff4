#include "runtime/dht/bootstrap.hpp"

#include <algorithm>
#include <utility>

namespace waggle {

void bootstrap::join_at(std::vector<endpoint> addresses) {
  addresses_ = std::move(addresses);
  if (addresses_.empty())
    joined_ = true;
}

std::vector<endpoint> bootstrap::dial() {
  std::vector<endpoint> out;
  for (const auto& where : addresses_) {
    auto known = found_.find(where);
    if (known == found_.end() || !connected_.contains(known->second))
      out.push_back(where);
  }
  owed_ += out.size();
  return out;
}

std::vector<endpoint> bootstrap::look_in() {
  return dialling() || !joined_ || retry_due_ ? std::vector<endpoint>{} : dial();
}

std::vector<endpoint> bootstrap::retry() {
  retry_due_ = false;
  return dialling() ? std::vector<endpoint>{} : dial();
}

void bootstrap::reached(const endpoint& where, const peer_id& who) {
  --owed_;
  failures_.erase(where);
  found_[where] = who;
  joined_ = true;
}

bool bootstrap::failed(const endpoint& where, const failure& why) {
  --owed_;
  if (why.code == ec::duplicate_identity) {
    joined_ = true;
    failures_.erase(where);
    std::erase(addresses_, where);
    return false;
  }
  return failures_.insert_or_assign(where, to_string(why)).second;
}

std::optional<milliseconds> bootstrap::pause(bool alone, random_source& random) {
  if (!alone) {
    pause_ = milliseconds{0};
    return std::nullopt;
  }
  if (std::exchange(retry_due_, true))
    return std::nullopt;
  pause_ = std::clamp(pause_ * 2, options_.retry_min, options_.retry_max);
  auto jitter = 0.75 + 0.5 * random.unit();
  return milliseconds{static_cast<std::int64_t>(static_cast<double>(pause_.count()) * jitter)};
}

std::vector<std::string> bootstrap::failures() const {
  std::vector<std::string> out;
  for (const auto& [where, why] : failures_)
    out.push_back(to_string(where) + ": " + why);
  return out;
}

bool bootstrap::connected(const peer_id& peer) {
  connected_.insert(peer);
  std::erase_if(lost_, [&](const peer_record& p) { return p.id == peer; });
  return !std::exchange(joined_, true);
}

void bootstrap::lost(const peer_record& peer) {
  lost_.push_back(peer);
  if (lost_.size() > options_.lost_max)
    lost_.pop_front();
}

std::optional<peer_record> bootstrap::next_lost() {
  if (lost_.empty())
    return std::nullopt;
  std::rotate(lost_.begin(), lost_.begin() + 1, lost_.end());
  return lost_.back();
}

} // namespace waggle
