#include "runtime/net/punching.hpp"

#include <algorithm>

#include "runtime/net/dial_policy.hpp"

namespace waggle::net {

namespace {

std::pair<peer_id, peer_id> in_order(const peer_id& one, const peer_id& other) {
  return std::minmax(one, other);
}

bool is_v6(const endpoint& where) {
  return where.host.find(':') != std::string::npos;
}

} // namespace

ec recent_pairs::take(const peer_id& one, const peer_id& other, steady_time now) {
  std::erase_if(pairs_, [&](const auto& each) { return now - each.second >= again_; });
  auto which = in_order(one, other);
  if (pairs_.contains(which))
    return ec::rate_limited;
  if (pairs_.size() >= max_)
    return ec::overloaded;
  pairs_.emplace(which, now);
  return ec::none;
}

bool recent_pairs::contains(const peer_id& one, const peer_id& other, steady_time now) const {
  auto found = pairs_.find(in_order(one, other));
  return found != pairs_.end() && now - found->second < again_;
}

result<punch_broker::moments> punch_broker::introduce(const punch_end& one,
                                                      const std::optional<punch_end>& other,
                                                      steady_time now) {
  if (!other)
    return failure{ec::not_found, "there is no link with that peer"};
  if (one.peer == other->peer)
    return failure{ec::protocol_violation, "a peer that asks for itself"};
  for (const auto& end : {one, *other})
    if (!end.dialled_us || !end.seen_at)
      return failure{ec::unreachable, "it is not known from where its router lets it out"};
  if (is_v6(*one.seen_at) != is_v6(*other->seen_at))
    return failure{ec::unreachable, "one has IPv4 here and the other has IPv6"};
  if (is_of_private_network(one.seen_at->host) != is_of_private_network(other->seen_at->host))
    return failure{ec::unreachable, "one is in our own network: its address here is of no use to "
                                    "the other"};
  for (const auto& end : {one, *other})
    if (!told_.take(to_string(end.peer), 1, now))
      return failure{ec::overloaded, "it has been told of many peers just now"};
  if (auto taken = pairs_.take(one.peer, other->peer, now); taken != ec::none)
    return failure{taken, "it was tried a short time ago, or for many pairs"};
  auto slower = std::max(one.round_trip, other->round_trip);
  auto wait = [&](const punch_end& end) {
    auto all = std::chrono::round<milliseconds>((slower - end.round_trip) / 2);
    return std::min(all, options_.wait_max);
  };
  return moments{wait(one), wait(*other)};
}

} // namespace waggle::net
