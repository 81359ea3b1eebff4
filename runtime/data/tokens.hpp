#pragma once

#include <optional>

#include "runtime/data/data_set.hpp"

namespace waggle {

/// Tokens as uint16 or uint32, little-endian, without a header (nanoGPT's and datatrove's layout);
/// one piece a file. Looks at the first tokens of each file; others are checked when they are read.
/// Fails with ec::bad_config and a sentence.
result<std::shared_ptr<const sample_data>> open_tokens(const data_files& files,
                                                       const data_request& request);

/// The value of each token of `in`. REQUIRES: `bytes` is 2 or 4 and divides the length of `in`,
/// `out` has room. Returns the first value that is not below `classes`; none: all are.
std::optional<std::uint32_t> read_tokens(byte_span in, std::size_t bytes, std::int64_t classes,
                                         std::int64_t* out);

} // namespace waggle
