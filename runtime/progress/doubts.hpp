#pragma once

#include <optional>
#include <string>
#include <utility>

#include "runtime/core/notice.hpp"
#include "runtime/core/time.hpp"
#include "runtime/progress/history_choice.hpp"

namespace waggle {

/// Claims of other peers that are not believed, for the operator. Not thread-safe.
class doubts {
public:
  /// The history that is not believed now, although more peers claim it than train ours; nothing:
  /// there is none. Returns a sentence if there is something new to say.
  std::optional<std::string> note(const std::optional<history_choice::doubt>& found,
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
      notice_ = {
        "history",
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
  /// A peer claims what is not so: shown for a while.
  void show(std::string what, steady_time now) {
    shown_ = std::move(what);
    shown_at_ = now;
  }
  /// Empty: what others claim agrees with what we know.
  [[nodiscard]] notice seen(steady_time now) const {
    if (!notice_.empty())
      return notice_;
    bool recent = !shown_.empty() && now - shown_at_ < shown_for;
    return recent ? notice{"claims", shown_, {}} : notice{};
  }
  /// Peers that claim that history, and with which this one has not completed rounds.
  [[nodiscard]] std::size_t strangers() const {
    return history_ ? history_->supporters - history_->known : 0;
  }

private:
  static constexpr milliseconds note_interval{60'000};
  static constexpr milliseconds shown_for{60'000};

  std::optional<history_choice::doubt> history_;
  notice notice_;
  steady_time noted_;
  std::string shown_;
  steady_time shown_at_;
};

} // namespace waggle
