#pragma once

#include <span>
#include <string>
#include <string_view>

namespace waggle::watch {

/// How events of a type are shown. The table stands in events.cpp, beside the fields of their
/// lines; pages get it with their snapshot.
struct event_type {
  std::string_view name;
  std::string_view group; // by which they are filtered: peers, run, problems, epochs, rounds
  std::string_view glyph;
  bool problem = false; // stands out
  /// "{other} left[: {reason}]": a field of the line, and what is left out where a line does not
  /// have it. Empty: the line's text, or reason.
  std::string_view sentence;
};
std::span<const event_type> event_types();
/// Null: a type of a later version.
const event_type* find_event_type(std::string_view name);
/// {"peer_left":{"group","glyph","problem","sentence"},…}, without what is empty.
const std::string& event_types_json();

} // namespace waggle::watch
