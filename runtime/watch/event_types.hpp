#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace waggle::watch {

/// The snapshot has the last events of each kind, so that none of the kinds that matter is pushed
/// out by those that come all the time.
enum class event_kind : std::uint8_t {
  round,
  epoch,
  checkpoint,
  routine, // phases, states
  arrival,
  departure,
  fault, // in a round
  slow,
  other
};
constexpr std::size_t event_kinds = 9;

/// It comes as long as all is well, every few seconds or more often.
constexpr bool is_usual(event_kind kind) {
  return kind == event_kind::round || kind == event_kind::epoch || kind == event_kind::checkpoint;
}

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
  event_kind kind = event_kind::other;
};
std::span<const event_type> event_types();
/// Null: a type of a later version.
const event_type* find_event_type(std::string_view name);
/// Routine that did not succeed is none. @param outcome of the line; empty: it has none.
event_kind kind_of(std::string_view type, std::string_view outcome);
/// {"peer_left":{"group","glyph","problem","sentence"},…}, without what is empty.
const std::string& event_types_json();

} // namespace waggle::watch
