#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "runtime/averaging/round_view.hpp"
#include "runtime/core/check.hpp"

namespace waggle {

/// What each member of a round reported about one of its views. Its first report about the highest
/// view counts. Not thread-safe.
template <class T>
class by_view {
public:
  void add(std::size_t member, std::uint32_t view, T value) {
    auto known = reports_.find(member);
    if (known == reports_.end() || known->second.first < view)
      correct(member, view, std::move(value));
  }
  /// `value` is the right one, whatever the member sent to us.
  void correct(std::size_t member, std::uint32_t view, T value) {
    reports_.insert_or_assign(member, std::pair{view, std::move(value)});
  }

  /// Null: nothing about this view.
  [[nodiscard]] const T* find(std::size_t member, std::uint32_t view) const {
    auto known = reports_.find(member);
    return known != reports_.end() && known->second.first == view ? &known->second.second : nullptr;
  }
  /// REQUIRES: find(member, view).
  [[nodiscard]] const T& of(std::size_t member, std::uint32_t view) const {
    const auto* found = find(member, view);
    WAGGLE_CHECK(found != nullptr, std::to_string(member));
    return *found;
  }
  /// Those of `among` that have reported something about this view.
  [[nodiscard]] member_set members(member_set among, std::uint32_t view) const {
    member_set out;
    among.for_each([&](std::size_t member) {
      if (find(member, view) != nullptr)
        out.insert(member);
    });
    return out;
  }
  /// The participants that have reported nothing about their view.
  [[nodiscard]] member_set missing(const round_view& view) const {
    return view.participant_set() - members(view.participant_set(), view.number);
  }

private:
  std::map<std::size_t, std::pair<std::uint32_t, T>> reports_; // by member
};

} // namespace waggle
