#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/codec/codec_choice.hpp"

namespace waggle {

// Choices as parse_codec_choice makes them from their texts.

inline codec_choice by_size(std::uint64_t threshold, codec_choice less,
                            codec_choice greater_equal) {
  codec_choice out;
  out.criterion = codec_choice::by::size;
  out.threshold = threshold;
  out.items = {{"", std::move(less)}, {"", std::move(greater_equal)}};
  return out;
}

inline codec_choice by_role(const std::map<tensor_role, codec_choice>& roles,
                            codec_choice otherwise = codec_id::none) {
  codec_choice out;
  out.criterion = codec_choice::by::role;
  for (const auto& [role, choice] : roles)
    out.items.push_back({std::string{to_string(role)}, choice});
  out.items.push_back({"default", std::move(otherwise)});
  return out;
}

inline codec_choice per_index(const std::vector<codec_choice>& choices) {
  codec_choice out;
  out.criterion = codec_choice::by::index;
  for (const auto& choice : choices)
    out.items.push_back({"", choice});
  return out;
}

inline codec_choice per_key(const std::map<std::string, codec_choice>& choices) {
  codec_choice out;
  out.criterion = codec_choice::by::key;
  for (const auto& [name, choice] : choices)
    out.items.push_back({name, choice});
  return out;
}

} // namespace waggle
