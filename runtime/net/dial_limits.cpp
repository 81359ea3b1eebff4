#include "runtime/net/dial_limits.hpp"

#include "runtime/net/refusals.hpp"

namespace waggle::net {

namespace {

/// For how long an address that leads to this peer itself is dialled for nobody: another host may
/// have it after a change of the network.
constexpr std::chrono::minutes pause_of_own{10};

bool leads_to_ourselves(const failure& why) {
  return why.code == ec::duplicate_identity && !started_wrongly(why);
}

} // namespace

bool dial_limits::exhausted(steady_time now) {
  while (!begun_.empty() && now - begun_.front() >= std::chrono::seconds{1})
    begun_.pop_front();
  return under_way_ >= options_.attempts_max || begun_.size() >= options_.attempts_max;
}

bool dial_limits::is_of_another(const entry& address, const peer_id& whose) {
  return !whose.is_zero() && !address.whose.is_zero() && whose != address.whose;
}

bool dial_limits::taken(const endpoint& where, const peer_id& whose) const {
  auto known = addresses_.find(where);
  return known != addresses_.end() && known->second.under_way > 0
         && is_of_another(known->second, whose);
}

std::optional<failure> dial_limits::failed_lately(const endpoint& where, const peer_id& whose,
                                                  steady_time now) const {
  auto known = addresses_.find(where);
  if (known == addresses_.end() || known->second.why.code == ec::none
      || now >= known->second.not_until
      || (!is_of_another(known->second, whose) && !leads_to_ourselves(known->second.why)))
    return std::nullopt;
  return known->second.why;
}

void dial_limits::begin(const endpoint& where, const peer_id& whose, steady_time now) {
  forget(now);
  auto& address = addresses_[where];
  if (!whose.is_zero())
    address.whose = whose;
  ++address.under_way;
  ++under_way_;
  begun_.push_back(now);
}

void dial_limits::end(const endpoint& where, const failure& why, steady_time now) {
  auto known = addresses_.find(where);
  if (known == addresses_.end() || known->second.under_way == 0)
    return;
  --under_way_;
  --known->second.under_way;
  known->second.why = why;
  known->second.not_until = now
                            + (leads_to_ourselves(why)         ? pause_of_own
                               : why.code == ec::bad_signature ? options_.pause_of_peers
                                                               : options_.pause);
}

void dial_limits::forget(steady_time now) {
  if (addresses_.size() < options_.addresses_max)
    return;
  std::erase_if(addresses_, [&](const auto& item) {
    return item.second.under_way == 0 && now >= item.second.not_until;
  });
  // Attempts a second times the pause are fewer than addresses_max.
  auto any = addresses_.begin();
  while (addresses_.size() >= options_.addresses_max && any != addresses_.end())
    any = any->second.under_way == 0 ? addresses_.erase(any) : std::next(any);
}

} // namespace waggle::net
