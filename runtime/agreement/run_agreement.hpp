#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"

namespace waggle {

/// One thing that all peers of a run must have alike.
struct agreed_field {
  std::string name; // as the option is called, where it is one: "lr"
  /// In one spelling, however it was written. Empty: not known here, equal to everything.
  std::string value;
  /// What follows --NAME in the line with which others join; empty: it is the default, or no
  /// option. Not compared: a data set has its own path on each machine.
  std::string option;

  friend bool operator==(const agreed_field&, const agreed_field&) = default;
};

/// What the peers of a run must have alike, as text: model, optimizer, schedule, target batch,
/// data, codec, … Peers compare it when a link is made, before anything is averaged. Bounded, so
/// that it fits into a handshake message.
class run_agreement {
public:
  static constexpr std::size_t fields_max = 64;
  static constexpr std::size_t name_bytes_max = 32;
  static constexpr std::size_t text_bytes_max = 1024; // of a value, or an option
  static constexpr std::size_t bytes_max = 3072;      // of encode()

  /// Appends a field. Fails with ec::bad_config if a limit is passed, the name is there already, or
  /// a text holds a control character (values are shown to people, and come from the network).
  [[nodiscard]] status add(agreed_field field);

  [[nodiscard]] const std::vector<agreed_field>& fields() const { return fields_; }
  [[nodiscard]] const agreed_field* find(std::string_view name) const;
  /// Over names and values in their order.
  [[nodiscard]] digest hash() const;

  /// At most bytes_max.
  [[nodiscard]] std::string encode() const;
  /// Reads what `encode` writes. Fails with ec::malformed.
  static result<run_agreement> decode(std::string_view bytes);

  friend bool operator==(const run_agreement&, const run_agreement&) = default;

private:
  std::vector<agreed_field> fields_;
  std::size_t bytes_ = 2; // of encode()
};

/// What differs, as a sentence for the operator `here`: "lr is 0.003 here and 0.01 there; …". The
/// first two fields are named. Nothing: a link can be made.
std::optional<std::string> disagreement(const run_agreement& here, const run_agreement& there);

} // namespace waggle
