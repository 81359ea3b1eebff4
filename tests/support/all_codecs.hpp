#pragma once

#include <vector>

#include "runtime/codec/codec_table.hpp"

namespace waggle {

/// Those that an option may name, in the order of their numbers.
inline const std::vector<codec_id>& all_codecs() {
  static const auto all = [] {
    std::vector<codec_id> ids;
    for (const auto* row : offered_codec_table)
      ids.push_back(row->id);
    return ids;
  }();
  return all;
}

} // namespace waggle
