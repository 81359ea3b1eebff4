#include "runtime/progress/client_group.hpp"

#include <utility>

#include "runtime/core/check.hpp"

namespace waggle {

client_group::action client_group::decide(const std::vector<swarm_progress::peer>& peers,
                                          steady_time now) {
  connected_.clear();
  for (const auto& peer : peers)
    if (own_.links.contains(peer.who.id) && !refused_.contains(peer.who.id))
      connected_.push_back(peer);
  if (is_member() && !in_round_)
    observe_samples(own_, connected_, claims_);
  if (place_ == place::entering || now < enter_after_)
    return {};
  action out;
  out.choice = choose_help(own_, connected_);
  switch (out.choice->what) {
    case help::enter:
      out.enter = true;
      if (is_member())
        out.leave = "history " + short_name(out.choice->past.branch) + " is preferred";
      break;
    case help::none:
      if (!is_member())
        break;
      clientless_since_ = clientless_since_.value_or(now);
      if (now - *clientless_since_ >= how_.patience_without_clients)
        out.leave = "no client there needs this node";
      break;
    case help::stay:
      clientless_since_.reset();
      out.call = samples_toward(own_, connected_, claims_, now).full();
      break;
  }
  return out;
}

void client_group::on_disconnected(const peer_id& peer) {
  own_.links.erase(peer);
  refused_.erase(peer);
}

void client_group::entered(const history& past, epoch_id epoch, const std::vector<peer_id>& members,
                           steady_time now) {
  WAGGLE_CHECK(place_ == place::entering, "");
  place_ = place::member;
  own_.past = past;
  own_.epoch = epoch;
  clientless_since_.reset();
  claims_.begin_epoch(now); // earlier claims were made to another group
  take_members(members);
}

void client_group::refused(const std::vector<peer_record>& too_long, steady_time now) {
  place_ = place::outside;
  enter_after_ = now + how_.entry_pause;
  for (const auto& peer : too_long)
    refused_.insert(peer.id);
}

std::uint64_t client_group::begin_round(steady_time now) {
  if (std::exchange(in_round_, true))
    return 0;
  claims_.begin_epoch(now);
  return ++rounds_;
}

sample_claims::shortfall client_group::advance(const history& past,
                                               const std::vector<peer_id>& contributors,
                                               const std::vector<peer_id>& participants,
                                               double weight_sum, bool complete, steady_time now) {
  in_round_ = false;
  known_.on_round(contributors);
  own_.past = past;
  own_.epoch = own_.epoch.next();
  weighs_samples_ = weighs_samples_ || weighs_samples(weight_sum, contributors.size());
  // Without any weight nobody has delivered anything, whatever is averaged.
  if (!complete || (!weighs_samples_ && weight_sum > 0))
    return {};
  return claims_.end_round(participants, weight_sum, 0, now);
}

void client_group::left(steady_time now) {
  place_ = place::outside;
  in_round_ = false;
  weighs_samples_ = false;
  own_.members.clear();
  own_.past = {};
  own_.epoch = {};
  clientless_since_.reset();
  enter_after_ = now + how_.entry_pause;
}

history_claim client_group::claim() const {
  history_claim out;
  out.auxiliary = true;
  out.past = own_.past;
  out.group_size = static_cast<std::uint32_t>(own_.members.size());
  out.ready = is_member() && !holders().empty();
  return out;
}

} // namespace waggle
