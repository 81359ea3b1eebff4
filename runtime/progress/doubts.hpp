#pragma once

#include <optional>
#include <string>

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
                                  steady_time now);
  /// A peer claims what is not so: shown for a while.
  void show(std::string what, steady_time now);
  /// Empty: what others claim agrees with what we know.
  [[nodiscard]] notice seen(steady_time now) const;
  /// Peers that claim that history, and with which this one has not completed rounds.
  [[nodiscard]] std::size_t strangers() const {
    return history_ ? history_->supporters - history_->known : 0;
  }

private:
  std::optional<history_choice::doubt> history_;
  notice notice_;
  steady_time noted_;
  std::string shown_;
  steady_time shown_at_;
};

} // namespace waggle
