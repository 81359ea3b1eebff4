#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace waggle {

/// Which values of a vector are written for good, while one thread still writes the others: rounds
/// send the parts of a gradient that the backward pass has left behind. Thread-safe: whoever sees
/// that values are there sees these values.
class filling {
public:
  // -- the thread that writes; nothing changes any more after the second or the third -------------

  /// The values from `begin` to `end` are written.
  void filled(std::size_t begin, std::size_t end);
  /// All values are.
  void complete();
  /// The others will never be, and those that are must not be used.
  void fail();

  // -- any thread ---------------------------------------------------------------------------------

  [[nodiscard]] bool has(std::size_t begin, std::size_t end) const;
  [[nodiscard]] bool failed() const;
  /// Complete, or failed.
  [[nodiscard]] bool ended() const;
  /// `changed` is called after each change from now on, by the thread that writes, which it must
  /// not hold up; instead of the one given before, which may be called once more.
  void listen(std::function<void()> changed);

private:
  enum class phase { open, complete, failed };
  void end(phase how);
  void tell();

  mutable std::mutex mutex_;
  // -- guarded by mutex_
  phase phase_ = phase::open;
  std::map<std::size_t, std::size_t> filled_; // begin → end; disjoint, not adjacent
  std::shared_ptr<const std::function<void()>> changed_;
};

} // namespace waggle
