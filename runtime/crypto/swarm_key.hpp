#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"

namespace waggle {

/// 32 random bytes that the peers of a run share, in place of a name that others can guess. Never
/// sent and never shown.
using swarm_key = byte_id<struct swarm_key_tag, 32>;

swarm_key make_swarm_key();
/// Reads a file that nobody but this user can read: 32 bytes, or the 64 hexadecimal digits of such.
result<swarm_key> load_swarm_key(const std::filesystem::path& file);
/// Writes the 32 bytes, mode 0600. Refuses to replace an existing file.
status save_swarm_key(const swarm_key& key, const std::filesystem::path& file);

/// As a run file holds it: "key:" and 64 hexadecimal digits.
std::string inline_text(const swarm_key& key);
bool is_inline_key(std::string_view text);
/// Fails with a sentence that does not show `text`.
result<swarm_key> parse_inline_key(std::string_view text);

/// What takes the place of a run's name in its records. The key does not follow from it.
std::string run_id_of(const swarm_key& key);

} // namespace waggle
