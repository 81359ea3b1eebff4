#pragma once

// Internal to config/: how the option table reads back the values that all peers of a run must
// agree on. Each value has one spelling, however the user wrote it.

#include <charconv>
#include <functional>
#include <string>

#include "runtime/agreement/data_identity.hpp"
#include "runtime/codec/codec_choice.hpp"
#include "runtime/config/run_options.hpp"

namespace waggle::agreed {

using getter = std::function<std::string(const run_options&)>;

inline getter value(std::string run_options::*field) {
  return [field](const run_options& o) { return o.*field; };
}

inline getter value(std::uint64_t run_options::*field) {
  return [field](const run_options& o) { return std::to_string(o.*field); };
}

/// The shortest text that parses to the same number.
inline std::string text_of(double number) {
  char text[32];
  auto end = std::to_chars(text, text + sizeof text, number);
  return {text, end.ptr};
}

inline getter value(double run_options::*field) {
  return [field](const run_options& o) { return text_of(o.*field); };
}

inline std::string data(const run_options& o) {
  // The bytes that one sample needs: the context and the byte after it.
  return o.data == "synthetic" ? o.data : data_identity(o.data, o.context + 1);
}

inline std::string codec(const run_options& o) {
  auto choice = parse_codec_choice(o.codec);
  return choice ? to_string(*choice) : o.codec;
}

inline std::string part_size(const run_options& o) {
  return o.part_bytes ? std::to_string(*o.part_bytes) : "auto";
}

/// The number of bits. The bits themselves differ between peers.
inline std::string group_bits(const run_options& o) {
  return o.group_bits == "auto" ? o.group_bits : std::to_string(o.group_bits.size()) + " bits";
}

} // namespace waggle::agreed
