#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/core/result.hpp"

namespace waggle {

/// Checks of files that other users of the machine must not read or hold. All sentences say what to
/// do. Thread-safe.

/// Whether the open file `handle` is a regular file that nobody but this user may read or write. A
/// file of root is accepted, too, and root may use the files of others. Fails with ec::bad_config.
status check_private(int handle, const std::filesystem::path& file);

/// At most the first `bytes_max` bytes of a file, if it passes check_private. Fails with
/// ec::io_error if it cannot be read. `what`: "the identity file ", in that sentence.
result<std::string> read_private(const std::filesystem::path& file, std::size_t bytes_max,
                                 std::string_view what = {});

/// Writes a new file of mode 0600 atomically, with its parent directories. Refuses to replace an
/// existing one.
status write_private(const std::filesystem::path& file, std::string_view bytes);

/// A warning if other users may read `file`, which holds a secret.
std::optional<std::string> readable_by_others(const std::filesystem::path& file);
/// A warning if other users may create and replace files in `folder`: mode bits for group or
/// others, without the sticky bit.
std::optional<std::string> writable_by_others(const std::filesystem::path& folder);

} // namespace waggle
