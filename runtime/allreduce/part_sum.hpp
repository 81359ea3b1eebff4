#pragma once

#include <cstdint>
#include <memory>

#include "runtime/averaging/part_reducer.hpp"

namespace waggle {

/// One part that this member reduces: what to sum, over whom, and where to write the mean. Shares
/// the contributions' bytes, so any thread may compute it.
struct reduce_part {
  std::uint32_t part = 0;
  std::uint32_t count = 0; // values
  member_set contributors;
  part_reducer contributions;
  std::shared_ptr<float> out; // room for `count` values
};

/// The answer: `out` holds the mean, unless `outcome` names contributions that are left out.
struct reduced_part {
  std::uint32_t part = 0;
  member_set contributors;
  part_reducer::reduction outcome;
  std::shared_ptr<float> out;
};

inline reduced_part reduce(const reduce_part& what) {
  return {what.part, what.contributors,
          what.contributions.reduce(what.contributors, {what.out.get(), what.count}), what.out};
}

} // namespace waggle
