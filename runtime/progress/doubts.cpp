#include "runtime/progress/doubts.hpp"

#include <utility>

namespace waggle {

namespace {

constexpr milliseconds note_interval{60'000};
constexpr milliseconds shown_for{60'000};

} // namespace

std::optional<std::string> doubts::note(const std::optional<history_choice::doubt>& found,
                                        steady_time now) {
  bool same =
    history_.has_value() == found.has_value() && (!history_ || history_->branch == found->branch);
  bool fewer = history_ && found && found->supporters < history_->supporters;
  history_ = found;
  if (!history_) {
    notice_ = {};
    return std::nullopt;
  }
  bool again = now - noted_ >= note_interval;
  if (!same || fewer || again || notice_.empty())
    notice_ = {"history",
               std::to_string(history_->supporters) + " peers, " + short_name(history_->first)
                 + " among them, claim history " + short_name(history_->branch)
                 + ", which is not believed, because this peer has completed rounds with "
                 + std::to_string(history_->known) + " of them",
               "if they are yours, and began the run apart from these, stop all peers on one side, "
               "then start them, so that they enter the other"};
  if (same && !again)
    return std::nullopt;
  noted_ = now;
  return notice_.text();
}

void doubts::show(std::string what, steady_time now) {
  shown_ = std::move(what);
  shown_at_ = now;
}

notice doubts::seen(steady_time now) const {
  if (!notice_.empty())
    return notice_;
  bool recent = !shown_.empty() && now - shown_at_ < shown_for;
  return recent ? notice{"claims", shown_, {}} : notice{};
}

} // namespace waggle
