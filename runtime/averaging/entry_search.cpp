#include "runtime/averaging/entry_search.hpp"

namespace waggle {

entry_search::entry_search(std::vector<peer_record> through, const digest& branch,
                           const peer_id& self)
  : branch_(branch), waiting_(through.begin(), through.end()), seen_{self} {}

bool entry_search::next() {
  while (!waiting_.empty()) {
    asked_ = std::move(waiting_.front());
    waiting_.pop_front();
    if (seen_.insert(asked_.id).second)
      return true;
  }
  return false;
}

void entry_search::refused(failure why, const std::vector<peer_record>& suggested) {
  why_ = std::move(why);
  if (why_.code != ec::not_a_leader || suggested.empty() || seen_.contains(suggested.front().id)
      || suggestions_ == suggestions_max)
    return;
  ++suggestions_;
  waiting_.push_front(suggested.front());
}

} // namespace waggle
