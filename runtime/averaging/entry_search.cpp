#include "runtime/averaging/entry_search.hpp"

#include <algorithm>
#include <utility>

namespace waggle {

entry_search::entry_search(std::vector<peer_record> through, const digest& branch,
                           const peer_id& self)
  : branch_(branch), waiting_(through.begin(), through.end()), seen_{self} {}

bool entry_search::next() {
  acceptances_ = 0;
  unreached_ = {};
  if (complaint_) {
    asked_ = std::move(complaint_->to);
    unreached_ = complaint_->about;
    complaint_.reset();
    return true;
  }
  while (!waiting_.empty()) {
    asked_ = std::move(waiting_.front());
    waiting_.pop_front();
    if (seen_.insert(asked_.id).second)
      return true;
  }
  if (accepted_by_.empty())
    return false;
  asked_ = std::move(accepted_by_.front());
  accepted_by_.pop_front();
  confirmed_ = accepted_by_.empty();
  return true;
}

bool entry_search::expects(const peer_id& who) const {
  return asks(who)
         || std::any_of(accepted_by_.begin(), accepted_by_.end(),
                        [&](const peer_record& leader) { return leader.id == who; });
}

bool entry_search::look_further() {
  auto other = [this](const peer_record& peer) { return !seen_.contains(peer.id); };
  if (confirmed_ || std::none_of(waiting_.begin(), waiting_.end(), other))
    return false;
  accepted_by_.push_back(asked_);
  return next();
}

void entry_search::refused(failure why, const std::vector<peer_record>& suggested) {
  bool refers = why.code == ec::not_a_leader;
  auto leader = refers && !suggested.empty() ? suggested.front().id : asked_.id;
  if (leader != asked_.id)
    named_by_.try_emplace(leader, asked_);
  else if (why.code == ec::unreachable || why.code == ec::timeout || why.code == ec::peer_lost)
    lost_.insert(leader);
  auto named = named_by_.find(leader);
  if (lost_.contains(leader) && named != named_by_.end()) {
    if (!std::exchange(complained_, true))
      complaint_ = {named->second, leader};
    why_ = {ec::unreachable, "peer " + short_name(leader) + ", which leads it, does not answer"};
    return;
  }
  if (!refers || !is_exclusion(why_.code)) // others only refer us to the leader that excludes us
    why_ = std::move(why);
  if (refers && !suggested.empty()) {
    auto accepted = std::find_if(accepted_by_.begin(), accepted_by_.end(),
                                 [&](const peer_record& l) { return l.id == leader; });
    if (accepted != accepted_by_.end()) { // asked next, before all others
      std::rotate(accepted_by_.begin(), accepted, accepted + 1);
      waiting_.clear();
      return;
    }
  }
  if (!refers || suggested.empty() || seen_.contains(leader) || suggestions_ == suggestions_max)
    return;
  ++suggestions_;
  waiting_.push_front(suggested.front());
}

std::string awaited_after(const failure& refusal) {
  std::string what;
  if (refusal.code == ec::group_full)
    what = "room in the run's group";
  else if (refusal.code == ec::excluded)
    what = "the run's group, which does not admit this peer for a while because it was silent or "
           "wrong in its rounds, or left them";
  else if (refusal.code == ec::stalled)
    what = "the run's group, which goes on without this peer for a while because it kept most "
           "rounds waiting, for longer than its samples are worth; a larger --target-batch-size "
           "makes rounds rarer";
  else if (refusal.code == ec::schema_mismatch)
    what = "a group that averages what we do";
  else if (refusal.code == ec::unreachable)
    what = "the run's group, which this peer does not reach";
  else
    return what;
  return what + ": " + to_string(refusal);
}

} // namespace waggle
