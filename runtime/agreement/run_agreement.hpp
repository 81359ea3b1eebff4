#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"

namespace waggle {

/// One setting that must be equal on all peers of a run.
struct agreed_field {
  std::string name; // the option's name, if it is an option: "lr"
  /// In canonical form. Empty: not known here; equal to every value.
  std::string value;
  /// What follows --NAME in the command line that other peers join with; empty: the default value,
  /// or not an option. Not compared: a data set has its own path on each machine.
  std::string option;
  /// What the fingerprints at the end of the value stand for (tensors_field). Known here only.
  std::vector<std::string> items{};

  friend bool operator==(const agreed_field&, const agreed_field&) = default;
};

/// A tensor that peers compare, in words, and a digest of what they compare of it.
struct compared_tensor {
  std::string words;
  digest of;
};
/// A field whose value is `summary` and a fingerprint of each tensor, or of neighbours if there are
/// many, so that a disagreement names the first one that differs.
agreed_field tensors_field(std::string name, std::string summary,
                           const std::vector<compared_tensor>& tensors);

/// The field of what decides how updates round, in words, and a hash of what they come to. Peers
/// differ if both do: another processor may round otherwise, and other software alike. Who does not
/// know it lacks the field.
agreed_field rounding_field(std::string words, std::uint64_t hash);

/// The settings that must be equal on all peers of a run, as text: model, optimizer, schedule,
/// target batch, data, codec, … Peers compare it when a link is opened, before anything is
/// averaged. Its size is bounded, so that it fits into a handshake message.
class run_agreement {
public:
  static constexpr std::size_t fields_max = 64;
  static constexpr std::size_t name_bytes_max = 32;
  static constexpr std::size_t text_bytes_max = 1024; // of a value, or an option
  static constexpr std::size_t bytes_max = 3072;      // of encode()

  /// Appends a field. Fails with ec::bad_config if a limit is exceeded, the name exists already, or
  /// a text contains a control character (values are printed, and come from the network).
  [[nodiscard]] status add(agreed_field field);

  [[nodiscard]] const std::vector<agreed_field>& fields() const { return fields_; }
  [[nodiscard]] const agreed_field* find(std::string_view name) const;
  /// Over names and values in their order, but of a rounding_field.
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

/// The differences as a sentence for the local operator: "lr is 0.003 here and 0.01 there; …".
/// Names the first two fields. Nothing: no difference, a link can be opened.
std::optional<std::string> disagreement(const run_agreement& here, const run_agreement& there);

} // namespace waggle
